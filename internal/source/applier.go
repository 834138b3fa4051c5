package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/pipeops/pipeops-vm-agent/internal/appfile"
	"github.com/pipeops/pipeops-vm-agent/internal/memory"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/render"
	"github.com/pipeops/pipeops-vm-agent/internal/signature"
	"github.com/pipeops/pipeops-vm-agent/internal/source/git"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
)

// The commands that the policy is asked about.
const (
	putSource      = "put-source"
	putApp         = "put-app"
	putBuild       = "put-build"
	syncSource     = "sync-source" // what brings a commit, in the audit log
	applyManifests = "apply-manifests"
)

// maxObjects bounds what one commit brings.
const maxObjects = 1000

// brought is what became of a commit.
type brought struct {
	commit   string
	tag      string // that led to the commit; empty for none
	new      bool   // it was applied, rather than found applied
	revision int64
	objects  int
	build    *runnerapi.SourceBuildStatus // nil where the source builds nothing
	hold     *runnerapi.SourceHold        // nil where the source follows the repository
	secrets  []string                     // values that were decrypted
}

// applier fetches commits, and applies what they contain in the name of the Runner that put the
// source.
type applier struct {
	Config
	policy  Policy // nil denies
	cluster *cluster
	journal *journal
}

// attempt gets the newest commit and applies it, unless it is applied already.
func (a *applier) attempt(ctx context.Context, o *object, dryRun bool) (brought, error) {
	remote, err := a.remote(ctx, o)
	if err != nil {
		return brought{}, err
	}
	known := ""
	if !dryRun && o.observed() && o.Status.Phase.Applied() {
		known = o.Status.Commit
	}
	found, files, err := git.Fetch(ctx, remote, o.Spec.Ref, folder(o.Spec), known, a.Limits)
	commit := found.Commit
	out := brought{commit: commit, tag: found.Tag, revision: o.Status.Revision, objects: o.Status.Objects}
	if err != nil || files == nil {
		return out, err
	}
	out.new = true
	undecrypted, err := a.decrypt(ctx, o, files, &out)
	if err != nil {
		return out, err
	}
	if o.Spec.Type == runnerapi.SourceApp {
		out.objects = 1
		out.revision, err = a.bringApp(ctx, o, commit, files, dryRun)
		return out, err
	}
	out.objects, err = a.bringManifests(ctx, o, commit, files, undecrypted, dryRun)
	return out, err
}

// folder returns what of the repository is needed: bases of a kustomization and files of values may
// be anywhere.
func folder(s runnerapi.SourceSpec) string {
	if s.Type == runnerapi.SourceKustomize || s.Chart != nil && len(s.Chart.ValuesFiles) > 0 {
		return ""
	}
	return s.Path
}

// allowed asks the cluster owner's policy as for a call of the Runner that put the source.
func (a *applier) allowed(o *object, i runnerapi.Intent) error {
	return a.decided(inNameOf(o, i))
}

func (a *applier) decided(i runnerapi.Intent) error {
	if a.policy == nil {
		return backend.DenyAll{}.Decide(i)
	}
	return a.policy.Decide(i)
}

// inNameOf returns the intent as one of the Runner that put the source.
func inNameOf(o *object, i runnerapi.Intent) runnerapi.Intent {
	i.Runner = o.caller().Runner
	if i.Namespace == "" && i.Command != applyManifests {
		i.Namespace = o.Namespace
	}
	return i
}

// putIntent is what the policy is asked about a source at each look. The call that put the source
// had its approval, where the policy requires one.
var putIntent = runnerapi.Intent{Command: putSource, Access: runnerapi.Named, Approved: true}

// signers returns by whose keys the source's commits must be signed: by one of each.
func (a *applier) signers(o *object) (all []signature.Signers, err error) {
	intents := []runnerapi.Intent{putIntent}
	if o.Spec.Build != nil {
		intents = append(intents, buildIntent(o, o.Spec.BuildSpec("", "")))
	}
	for _, i := range intents {
		s, err := a.policy.Signers(inNameOf(o, i))
		if err != nil {
			return nil, err
		}
		if s != nil {
			all = append(all, *s)
		}
	}
	return all, nil
}

// bare returns the repository without credentials.
func (a *applier) bare(o *object) git.Remote {
	return git.Remote{URL: o.Spec.URL, Namespace: o.Namespace, Proxy: a.Proxy, Guard: a.Guard}
}

// remote returns the repository, with the credentials of the Secret that the spec names, and the
// signers that the policy demands.
func (a *applier) remote(ctx context.Context, o *object) (git.Remote, error) {
	r := a.bare(o)
	var err error
	if r.Signers, err = a.signers(o); err != nil || o.Spec.Credentials == "" {
		return r, err
	}
	u, err := runnerapi.ParseGitURL(o.Spec.URL)
	if err != nil {
		return r, problem.Errorf(problem.Invalid, "correct url", "url %v", err)
	}
	data, err := a.secret(ctx, o, o.Spec.Credentials)
	if err != nil {
		return r, err
	}
	r.Auth, err = git.ReadAuth(o.Spec.Credentials, data, u)
	return r, err
}

// secrets is the resource of Secrets.
var secrets = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}

// secret returns the content of a Secret in the source's namespace, or in that of the source whose
// preview it is.
func (a *applier) secret(ctx context.Context, o *object, name string) (map[string][]byte, error) {
	api, err := a.cluster.client()
	if err != nil {
		return nil, err
	}
	home, err := a.home(ctx, api, o)
	if err != nil {
		return nil, err
	}
	s, err := readSecret(ctx, api, home, name)
	return s.Data, err
}

// readSecret reads a Secret. Its errors quote nothing of the content.
func readSecret(ctx context.Context, api *api, namespace, name string) (s corev1.Secret, err error) {
	found, err := api.objects.Resource(secrets).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return s, &git.Error{Reason: git.Credentials, Message: fmt.Sprintf("there is no Secret %s in namespace %s", name, namespace), Fix: "make it: pipeops-runner secret set AGENT " + name}
	}
	if err != nil {
		return s, fmt.Errorf("read Secret %s/%s: %w", namespace, name, err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, &s); err != nil {
		return s, fmt.Errorf("read Secret %s/%s: its content has another form", namespace, name) // the error may quote it
	}
	return s, nil
}

// bringApp deploys the App of a file, and returns its generation.
func (a *applier) bringApp(ctx context.Context, o *object, commit string, files git.Files, dryRun bool) (int64, error) {
	text, err := appFile(o, files)
	if err != nil {
		return 0, err
	}
	spec, err := decodeApp(o, text)
	if err != nil {
		return 0, err
	}
	generation, err := a.deploy(ctx, o, commit, spec, dryRun)
	if problem.Is(err, problem.Invalid) {
		err = inFile(err, o.Spec.Path)
	}
	return generation, err
}

func appFile(o *object, files git.Files) ([]byte, error) {
	text, ok := files[strings.Trim(o.Spec.Path, "/")]
	if !ok {
		return nil, &git.Error{Reason: git.PathMissing, Message: o.Spec.Path + " is not a file, or larger than 1 MiB", Fix: "set path to the file with the App's spec"}
	}
	return text, nil
}

func decodeApp(o *object, text []byte) (runnerapi.AppSpec, error) {
	spec, err := readApp(text, appKey(o))
	switch {
	case err != nil && o.Spec.AppSpec != "":
		return spec, problem.Errorf(problem.Invalid, "correct it", "%v", err).WithField("appSpec")
	case err != nil:
		return spec, problem.Errorf(problem.Invalid, "correct the file and push it", "%s: %v", o.Spec.Path, err)
	case spec.Image == "" && o.Spec.Build == nil && spec.Type != runnerapi.TypePipeline:
		return spec, problem.Errorf(problem.Invalid, "name one, or have it built of each commit: build in the source (docs/deployer/git.md)", "%s: names no image", o.Spec.Path)
	}
	return spec, nil
}

func appKey(o *object) runnerapi.Key {
	return runnerapi.Key{Namespace: o.Namespace, Name: o.wire().AppName()}
}

func (a *applier) deploy(ctx context.Context, o *object, commit string, spec runnerapi.AppSpec, dryRun bool) (int64, error) {
	// What Git does not name of the scale and the pause stays, and the policy is asked again about
	// that.
	if o.Spec.PreviewOf != nil {
		spec.Ingress = ingressOfPreview(o.Spec.PreviewOf, spec.Ingress)
	}
	admit := func(spec runnerapi.AppSpec) error {
		return a.allowed(o, runnerapi.Intent{Command: putApp, Access: runnerapi.Writes, Name: appKey(o).Name, App: &spec})
	}
	if err := admit(spec); err != nil {
		return 0, err
	}
	if err := a.journal.before(ctx, o, syncSource, o.key(), commit, dryRun); err != nil {
		return 0, err
	}
	app, err := a.Apps.Deploy(ctx, appKey(o), spec, runnerapi.WriteOptions{DryRun: dryRun, Caller: o.caller(), Commit: commit, Admit: admit})
	return app.Generation, err
}

// readApp reads a spec, or an App of this name.
func readApp(text []byte, key runnerapi.Key) (runnerapi.AppSpec, error) {
	file, err := appfile.Read(text)
	switch {
	case err != nil:
		return runnerapi.AppSpec{}, err
	case file.Name != "" && file.Name != key.Name:
		return runnerapi.AppSpec{}, fmt.Errorf("is App %.63q; the source is for App %q: set app in the source", file.Name, key.Name)
	case file.Namespace != "" && file.Namespace != key.Namespace:
		return runnerapi.AppSpec{}, fmt.Errorf("is for namespace %.63q; the source is in %q", file.Namespace, key.Namespace)
	}
	return file.Spec, nil
}

// bringManifests renders the files and applies what comes of it; it returns how many objects that
// are.
func (a *applier) bringManifests(ctx context.Context, o *object, commit string, files git.Files, undecrypted map[string]render.Problem, dryRun bool) (int, error) {
	if a.Manifests == nil {
		return 0, runnerapi.NotSupported("use a source of type app", "this agent applies no manifests")
	}
	job, err := a.job(o, files)
	if err != nil {
		return 0, err
	}
	job.Undecrypted = undecrypted
	// The files are sent to the child, beside which they stay in memory. Its memory becomes the
	// agent's when it has ended: for the objects of what it rendered.
	hold, err := memory.Acquire(ctx, o.Namespace, "source "+o.key().String(), render.Memory+files.Size())
	if err != nil {
		return 0, err
	}
	defer hold.Release()
	rendered, err := render.Process{Command: a.Render, Reserved: true}.Run(ctx, job)
	if err != nil {
		return 0, err
	}
	set := Set{
		Namespace: o.Namespace, Name: o.Name, DryRun: dryRun, Prune: o.Spec.Prune, Force: o.Spec.ForceConflicts, By: o.caller().Runner,
		Admit: func(namespace string, b runnerapi.ObjectIntent) error {
			if err := stays(o, namespace, b); err != nil {
				return err
			}
			return a.allowed(o, runnerapi.Intent{
				Command: applyManifests, Access: runnerapi.Named, Namespace: namespace, Objects: []runnerapi.ObjectIntent{b},
			})
		},
	}
	if err := a.decode(&set, rendered.Texts); err != nil {
		return 0, err
	}
	hold.Shrink(memoryOf(rendered.Texts))
	if err := a.journal.before(ctx, o, syncSource, o.key(), commit, dryRun); err != nil {
		return 0, err
	}
	return len(set.Objects), a.Manifests.Apply(ctx, set)
}

func (a *applier) job(o *object, files git.Files) (render.Job, error) {
	j := render.Job{Type: render.Type(o.Spec.Type), Path: o.Spec.Path, Files: files, Release: o.Name, Namespace: o.Namespace}
	if o.Spec.Type != runnerapi.SourceHelm {
		return j, nil
	}
	if c := o.Spec.Chart; c != nil {
		j.ValuesFiles, j.Values = c.ValuesFiles, c.Values
		if c.Release != "" {
			j.Release = c.Release
		}
	}
	api, err := a.cluster.client()
	if err != nil {
		return j, err
	}
	version, err := api.discovery.ServerVersion()
	if err != nil {
		return j, fmt.Errorf("ask for the cluster's version: %w", err)
	}
	j.KubeVersion = version.GitVersion
	return j, nil
}

// perRendered is how many bytes of memory a byte of rendered manifests takes: its objects, and the
// cluster's, with which they are compared.
const perRendered = 12

func memoryOf(texts []render.Text) (bytes int64) {
	for _, t := range texts {
		bytes += perRendered * int64(len(t.Body))
	}
	return bytes
}

// decode reads all texts as one set, and keeps where each object is from. What cannot be read is an
// error if there is nothing else; otherwise the set has it.
func (a *applier) decode(set *Set, texts []render.Text) error {
	from := map[*unstructured.Unstructured]string{}
	var unread []error
	for _, text := range texts {
		objects, where, err := a.Manifests.Read(bytes.NewReader(text.Body))
		if err != nil {
			unread = append(unread, inFile(err, text.Name))
		}
		for _, u := range objects {
			from[u] = text.Name
			if where != nil {
				from[u] += ", " + where(u)
			}
		}
		set.Objects = append(set.Objects, objects...)
		if len(set.Objects) > maxObjects {
			return problem.Errorf(problem.TooLarge, "split it into several sources", "there are more than %d manifests", maxObjects)
		}
	}
	set.Unread = problem.Together(unread)
	if len(set.Objects) > 0 {
		set.Where = func(u *unstructured.Unstructured) string { return from[u] }
		return nil
	}
	if set.Unread != nil {
		return set.Unread
	}
	return problem.Errorf(problem.Invalid, "correct path", "there are no manifests in what the source names")
}

// beside returns a place within a file.
func beside(name, location string) string {
	if location == "" {
		return name
	}
	return name + ": " + location
}

// inFile puts a file's name before what is wrong with a document of it.
func inFile(err error, name string) error {
	if p, ok := errors.AsType[*problem.Error](err); ok {
		q := *p
		q.Detail, q.Location, q.Fields = name+": "+p.Placed(), beside(name, p.Location), nil
		for _, f := range p.Fields {
			f.Message, f.Location = name+": "+f.String(), beside(name, f.Location)
			q.Fields = append(q.Fields, f)
		}
		return &q
	}
	return fmt.Errorf("%s: %w", name, err)
}
