// Package tables is what lists of an agent's objects show, for the command line and for pages. A
// table is written row by row by cli.Row, its header first.
package tables

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Secrets writes Secrets, without their values.
func Secrets(w io.Writer, secrets ...runnerapi.Secret) {
	cli.Row(w, "NAMESPACE", "NAME", "TYPE", "KEYS", "DIGEST", "AGE")
	for _, s := range secrets {
		keys := make([]string, len(s.Keys))
		for i, k := range s.Keys {
			keys[i] = k.Key
		}
		cli.Row(w, s.Namespace, s.Name, s.Type, strings.Join(keys, ","), s.Digest, cli.Age(s.CreatedAt))
	}
}

// ConfigMaps writes ConfigMaps, without their values.
func ConfigMaps(w io.Writer, maps ...runnerapi.ConfigMap) {
	cli.Row(w, "NAMESPACE", "NAME", "KEYS", "DIGEST", "AGE")
	for _, cm := range maps {
		keys := make([]string, len(cm.Keys))
		for i, k := range cm.Keys {
			keys[i] = k.Key
		}
		cli.Row(w, cm.Namespace, cm.Name, strings.Join(keys, ","), cm.Digest, cli.Age(cm.CreatedAt))
	}
}

// Jobs writes Jobs.
func Jobs(w io.Writer, items ...runnerapi.Job) {
	cli.Row(w, "NAME", "STATE", "TRIES", "EXIT", "STARTED", "CAUSE", "IMAGE")
	for _, j := range items {
		cli.Row(w, j.Name, j.Status.State, j.Status.Tries, ExitCode(j.Status.ExitCode), Since(j.Status.StartedAt), Cause(j.Status.Diagnosis), j.Spec.Image)
	}
}

// Pipelines writes Pipelines.
func Pipelines(w io.Writer, items ...runnerapi.Pipeline) {
	cli.Row(w, "NAME", "STATE", "JOB", "STARTED", "CAUSE")
	for _, p := range items {
		cli.Row(w, p.Name, p.Status.State, UnderWay(p), Since(p.Status.StartedAt), Cause(p.Status.Diagnosis))
	}
}

// Releases writes Helm releases.
func Releases(w io.Writer, list ...runnerapi.Release) {
	cli.Row(w, "NAMESPACE", "NAME", "REVISION", "STATUS", "CHART", "AGE", "DESCRIPTION")
	for _, r := range list {
		cli.Row(w, r.Namespace, r.Name, r.Revision, r.Status, r.Chart.Name+"-"+r.Chart.Version, cli.Age(r.UpdatedAt), r.Description)
	}
}

// Sources writes Git sources.
func Sources(w io.Writer, sources ...runnerapi.Source) {
	cli.Row(w, "NAME", "TYPE", "PHASE", "COMMIT", "PATH", "OBJECTS", "AGE")
	for _, s := range sources {
		cli.Row(w, s.Name, s.Spec.Type, s.Status.Phase, fmt.Sprintf("%.12s", s.Status.Commit), cli.Printable(s.Spec.Path), s.Status.Objects, cli.Age(s.CreatedAt))
	}
}

// Previews writes the previews of a source.
func Previews(w io.Writer, previews ...runnerapi.SourcePreview) {
	cli.Row(w, "NUMBER", "BRANCH", "COMMIT", "STATE", "PHASE", "NAMESPACE", "EXPIRES", "URL")
	for _, p := range previews {
		cli.Row(w, p.Number, cli.Printable(p.Branch), fmt.Sprintf("%.12s", p.Commit), p.State, p.Phase, p.Namespace, p.ExpiresAt, p.URL)
	}
}

// Builds writes builds.
func Builds(w io.Writer, builds ...runnerapi.Build) {
	cli.Row(w, "NAME", "PHASE", "COMMIT", "IMAGE", "SECONDS", "CAUSE", "AGE")
	for _, b := range builds {
		cause := ""
		if b.Status.Failure != nil {
			cause = b.Status.Failure.Cause
		}
		cli.Row(w, b.Name, b.Status.Phase, b.Status.Commit[:min(12, len(b.Status.Commit))], b.Status.Image, fmt.Sprintf("%.0f", b.Status.Seconds), cause, cli.Age(b.CreatedAt))
	}
}

// ManifestSets writes sets of manifests.
func ManifestSets(w io.Writer, sets ...runnerapi.ManifestSet) {
	cli.Row(w, "NAME", "OBJECTS", "STATE", "APPLIED", "BY")
	for _, s := range sets {
		state := "complete"
		switch {
		case !s.Complete:
			state = "incomplete"
		case s.Ready != nil && *s.Ready:
			state = "ready"
		case s.Ready != nil:
			state = "not ready"
		}
		cli.Row(w, s.Name, fmt.Sprint(s.Count), state, cli.Age(s.AppliedAt), s.AppliedBy)
	}
}

// Namespaces writes namespaces.
func Namespaces(w io.Writer, list ...runnerapi.Namespace) {
	cli.Row(w, "NAME", "PHASE", "APPS", "LABELS", "AGE")
	for _, ns := range list {
		labels := make([]string, 0, len(ns.Labels))
		for _, k := range slices.Sorted(maps.Keys(ns.Labels)) {
			labels = append(labels, k+"="+ns.Labels[k])
		}
		cli.Row(w, ns.Name, ns.Phase, ns.Apps, strings.Join(labels, ","), cli.Age(ns.CreatedAt))
	}
}

// Alerts writes alerts.
func Alerts(w io.Writer, alerts []runnerapi.Alert) {
	cli.Row(w, "STATE", "SEVERITY", "NAMESPACE", "APP", "ALERT", "SINCE", "SUMMARY")
	for _, a := range alerts {
		cli.Row(w, a.State, a.Severity, a.Namespace, a.App, a.Name, cli.Age(a.ActiveAt), cmp.Or(a.Summary, a.Description))
	}
}

// Costs writes what namespaces cost, or Apps.
func Costs(w io.Writer, costs []runnerapi.Cost, byApp bool) {
	header := []any{"CPU", "MEMORY", "STORAGE", "NETWORK", "OTHER", "TOTAL"}
	if byApp {
		header = append([]any{"APP"}, header...)
	}
	cli.Row(w, append([]any{"NAMESPACE"}, header...)...)
	for _, c := range costs {
		cells := []any{c.Namespace}
		if byApp {
			cells = append(cells, c.App)
		}
		for _, n := range []float64{c.CPU, c.Memory, c.Storage, c.Network, c.Other, c.Total} {
			cells = append(cells, fmt.Sprintf("%.2f", n))
		}
		cli.Row(w, cells...)
	}
}

// ExitCode returns an exit code; empty while there is none.
func ExitCode(code *int32) string {
	if code == nil {
		return ""
	}
	return fmt.Sprint(*code)
}

// Cause returns why something failed; empty if it did not.
func Cause(d *runnerapi.Diagnosis) runnerapi.Cause {
	if d == nil {
		return ""
	}
	return d.Cause
}

// Since returns how long ago something was; empty if it was not yet.
func Since(t *time.Time) string {
	if t == nil {
		return ""
	}
	return cli.Age(*t)
}

// UnderWay returns the job that a Pipeline has come to.
func UnderWay(p runnerapi.Pipeline) string {
	for i, j := range p.Status.Jobs {
		if j.State != runnerapi.JobSucceeded && j.State != runnerapi.JobWaiting {
			return fmt.Sprintf("job %d of %d, %s", i+1, len(p.Status.Jobs), j.Name)
		}
	}
	return ""
}
