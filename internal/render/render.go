// Package render makes manifests. It renders a commit's files unchanged, with kustomize, or as a
// chart, as `helm template` does. It renders a release's chart as `helm install` does.
//
// Templates are programs: three nested loops take all memory or never end, and neither
// text/template nor kustomize can be stopped. So both run in a separate process, which executes
// the agent's program again. It has limits on memory and time. Neither its interpreters (see
// kustomize.go, chart.go) nor the kernel (see the folder cage) let it reach credentials, files or
// the network. It asks the agent for what a release's templates look up (see process.go).
package render

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// Type is the type of the files.
type Type string

// What files can be.
const (
	Manifests Type = "manifests"
	Kustomize Type = "kustomize"
	Chart     Type = "chart"
	Release   Type = "release" // a chart's archive, with its hooks and notes
)

// Job contains the files, and what to make of them.
type Job struct {
	Type  Type
	Path  string // a folder, or for Manifests also a file; empty for all
	Files map[string][]byte
	// Undecrypted is why encrypted files were not decrypted: they cannot be used.
	Undecrypted map[string]Problem
	Keys        Keys // of Decrypt
	// Archive is the chart of a Release, as helm package makes it.
	Archive []byte

	// Of a Chart or a Release.
	Release, Namespace string
	ValuesFiles        []string // from the root of the repository
	Values             string   // YAML, which wins; of a Release JSON
	KubeVersion        string   // as v1.36.3; a default when empty

	// Of a Release.
	APIVersions []string // what the cluster has: "apps/v1", "apps/v1/Deployment"
	Revision    int      // to be
	Upgrade     bool     // instead of an installation
	SkipSchema  bool     // of the values
	Defaults    string   // JSON in place of the chart's own values.yaml; empty for those
}

// Text contains manifests, and their origin.
type Text struct {
	Name string
	Body []byte
}

// Result contains the manifests, or what is wrong with the files.
type Result struct {
	// Texts of a Release are each template's, hooks and notes with them, under the
	// template's full name: web/charts/db/templates/a.yaml.
	Texts   []Text
	Skipped []string // of a Chart: hooks, which are a release's matter
	Problem *Problem

	// Of a Release.
	CRDs  []Text
	Chart []byte // the chart without those that it depends on, as Helm keeps it, in JSON

	// Of Decrypt: Texts are the decrypted files, and Decrypted the values that were encrypted.
	Decrypted   []string
	Undecrypted map[string]Problem

	// Looked is set where the templates were given objects of the cluster.
	Looked bool
}

// Problem describes what is wrong with the files.
type Problem struct {
	Code         problem.Code // empty for Invalid
	Message, Fix string
	// Where is the template and its line, if they are known. It contains nothing of the template's
	// output.
	Where string
}

// Withheld replaces an error's text that may contain what a template looked up.
const Withheld = "the text of the error is withheld, because the chart looked something up in the cluster"

// withheld returns a problem without its text.
func (p *Problem) withheld() *Problem {
	where := cmp.Or(p.Where, "the chart does not render")
	return &Problem{Code: p.Code, Message: where + ": " + Withheld, Fix: p.Fix, Where: p.Where}
}

// Err returns the Problem as an error, or nil.
func (r Result) Err() error {
	if r.Problem == nil {
		return nil
	}
	code := cmp.Or(r.Problem.Code, problem.Invalid)
	if slices.Contains(decryption, code) {
		return problem.New(http.StatusUnprocessableEntity, code, r.Problem.Fix, "%s", r.Problem.Message)
	}
	return problem.Errorf(code, r.Problem.Fix, "%s", r.Problem.Message)
}

// MaxOutput bounds the manifests of a job, in bytes.
const MaxOutput = 4 << 20

func wrong(fix, format string, args ...any) Result {
	return Result{Problem: &Problem{Message: clip(fmt.Sprintf(format, args...)), Fix: fix}}
}

func tooLarge(fix, format string, args ...any) Result {
	r := wrong(fix, format, args...)
	r.Problem.Code = problem.TooLarge
	return r
}

const maxMessage = 2000

func clip(s string) string { return printable.Shorten(s, maxMessage) }

// do carries a job out in this process.
func do(j Job, ask asker) (r Result) {
	defer func() {
		if v := recover(); v != nil { // of a library, because of what it was given
			r = wrong("correct the files; the same with `kustomize build` or `helm template` may say more", "the files cannot be rendered: %v", v)
		}
	}()
	switch j.Type {
	case Decrypt:
		r = decrypt(j)
	case Manifests:
		r = plain(j)
	case Kustomize:
		r = kustomize(j)
	case Chart:
		r = chart(j, ask)
	case Release:
		r = release(j, ask)
	default:
		return wrong("report this", "%q is no way to render", j.Type)
	}
	if r.Problem != nil {
		return Result{Problem: r.Problem}
	}
	return fitting(r)
}

// fitting refuses more than MaxOutput, naming what most of it is.
func fitting(r Result) Result {
	total, largest := 0, Text{}
	for _, t := range r.Texts {
		if total += len(t.Body); len(t.Body) > len(largest.Body) {
			largest = t
		}
	}
	if total <= MaxOutput {
		return r
	}
	return tooLarge("split it", "there are %d bytes of manifests; %d are the most. The largest is %s with %d bytes in %d lines",
		total, MaxOutput, largest.Name, len(largest.Body), bytes.Count(largest.Body, []byte("\n"))+1)
}

// plain takes the YAML and JSON files that are not ignored, in the order of their names.
func plain(j Job) Result {
	var r Result
	left := 0
	ignore := notManifests(j.Files, j.Path)
	for _, name := range slices.Sorted(maps.Keys(j.Files)) {
		switch path.Ext(name) {
		case ".yaml", ".yml", ".json":
			switch {
			case !within(name, j.Path):
			case name != clean(j.Path) && ignore(name):
				left++
			default:
				if err := j.usable(name); err != nil {
					return wrongFile(err, "")
				}
				r.Texts = append(r.Texts, Text{name, j.Files[name]})
			}
		}
	}
	if len(r.Texts) == 0 && left > 0 {
		return wrong("correct path, or take files in with a line !PATTERN in "+IgnoreFile+" (docs/deployer/git.md)",
			"all %d files in %s whose names end in .yaml, .yml or .json are ignored", left, where(j.Path))
	}
	if len(r.Texts) == 0 {
		return wrong("correct path, or add files whose names end in .yaml, .yml or .json", "there are no manifests in %s", where(j.Path))
	}
	return r
}

// within reports whether a file is this one, or in this folder or below.
func within(name, folder string) bool {
	folder = clean(folder)
	return folder == "" || name == folder || strings.HasPrefix(name, folder+"/")
}

// clean returns a path as Files has it; empty for the root.
func clean(p string) string { return strings.Trim(path.Clean("/"+p), "/") }

func where(p string) string {
	if p = clean(p); p == "" {
		return "the repository"
	}
	return p
}
