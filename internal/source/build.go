package source

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/source/git"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Builds makes images of commits.
type Builds interface {
	// Supersede starts a run, unless this run was started before, and ends any other run in
	// progress. It records which source the run belongs to.
	Supersede(ctx context.Context, source, key runnerapi.Key, spec runnerapi.BuildSpec, opts runnerapi.WriteOptions) (runnerapi.Build, error)
	GetBuild(ctx context.Context, key runnerapi.Key) (runnerapi.Build, error)
	DeleteBuild(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) error
	// OfSources returns all builds that were started this way, with the source of each.
	OfSources(ctx context.Context) (map[runnerapi.Key]runnerapi.Key, error)
}

const (
	// buildPause is the interval of checks of a build in progress.
	buildPause = 3 * time.Second
	// maxTries bounds how often the same build is repeated without a new request.
	maxTries = 3
)

// passing are causes that another run may not meet.
var passing = []string{"pod_lost", "evicted", "registry_unreachable", string(git.Unreachable), string(git.Timeout)}

// attemptBuilt is like attempt for an App whose image is built. Its progress is in the source's
// status and in the Jobs of the build, so that any replica can continue.
func (k *Keeper) attemptBuilt(ctx context.Context, o *object, dryRun bool) (brought, error) {
	out := brought{revision: o.Status.Revision, objects: o.Status.Objects, build: o.Status.Build}
	if dryRun || !o.observed() {
		return k.newest(ctx, o, out, "", dryRun)
	}
	switch last := out.build; {
	case o.Status.Phase.Applied():
		return k.newest(ctx, o, out, o.Status.Commit, false)
	case last != nil && o.Status.Phase == runnerapi.SourceBuilding:
		return k.goOn(ctx, o, out)
	case last != nil && last.Failure != nil && (tries(last.Run) >= maxTries || !slices.Contains(passing, last.Failure.Cause)):
		return k.newest(ctx, o, out, last.Commit, false)
	}
	return k.newest(ctx, o, out, "", false)
}

// newest fetches the commit of the ref, unless it is known. If the build of a known commit has
// failed, the known result is the reason.
func (k *Keeper) newest(ctx context.Context, o *object, out brought, known string, dryRun bool) (brought, error) {
	commit, text, err := k.appText(ctx, o, o.Spec.Ref, known)
	out.commit = commit
	if err != nil {
		return out, err
	}
	if commit == known {
		if out.build != nil && out.build.Commit == known {
			err = buildError(o, *out.build)
		}
		return out, err
	}
	return k.bringBuilt(ctx, o, out, text, dryRun)
}

// goOn checks the build in progress, and brings its result, even if newer commits were pushed.
// Otherwise a branch that changes faster than its build takes would never be deployed.
func (k *Keeper) goOn(ctx context.Context, o *object, out brought) (brought, error) {
	out.commit = out.build.Commit
	if err := k.see(ctx, o, &out); err != nil || out.building() {
		return out, err
	}
	_, text, err := k.appText(ctx, o, runnerapi.GitRef{Commit: out.commit}, "")
	var g *git.Error
	switch {
	case errors.As(err, &g) && g.Reason == git.RefMissing: // a server that only serves the newest commit of a ref
		return k.newest(ctx, o, out, "", false)
	case err != nil:
		return out, err
	}
	return k.bringBuilt(ctx, o, out, text, false)
}

// appText returns the App's spec in a commit; none for a commit that is known.
func (k *Keeper) appText(ctx context.Context, o *object, ref runnerapi.GitRef, known string) (string, []byte, error) {
	remote, err := k.remote(ctx, o)
	if err != nil {
		return "", nil, err
	}
	if o.Spec.AppSpec != "" {
		commit := ref.Commit
		if commit == "" {
			commit, err = git.Resolve(ctx, remote, ref, k.Limits)
		}
		return commit, []byte(o.Spec.AppSpec), err
	}
	commit, files, err := git.Fetch(ctx, remote, ref, folder(o.Spec), known, k.Limits)
	if err != nil || files == nil {
		return commit, nil, err
	}
	text, err := appFile(o, files)
	return commit, text, err
}

// bringBuilt deploys the App with the image of the commit, once that is built. Before that, it
// tries everything but the image: nothing is built for an App that cannot exist.
func (k *Keeper) bringBuilt(ctx context.Context, o *object, out brought, text []byte, dryRun bool) (brought, error) {
	spec, err := decodeApp(o, text)
	if err != nil {
		return out, err
	}
	if spec.Image == "" {
		run := runOf(o.Spec, out.commit)
		if dryRun || !out.has(o, run) {
			spec.Image = fmt.Sprintf("%s:%.12s", o.Spec.Build.Image, out.commit)
			if _, err := k.deploy(ctx, o, out.commit, spec, true); err != nil {
				return out, err
			}
			if err := k.start(ctx, o, &out, run, dryRun); err != nil || dryRun || out.building() {
				return out, err
			}
		}
		spec.Image = out.build.Image
	}
	out.new, out.objects = true, 1
	out.revision, err = k.deploy(ctx, o, out.commit, spec, dryRun)
	return out, err
}

// has reports whether the image exists.
func (out brought) has(o *object, run string) bool { return out.made(o, run) && out.build.Image != "" }

// made reports whether the build is the run, or another try of it.
func (out brought) made(o *object, run string) bool {
	b := out.build
	return b != nil && b.Key() == o.wire().BuildKey() && (b.Run == run || strings.HasPrefix(b.Run, run+"."))
}

func (out brought) building() bool { return out.build != nil && !out.build.Phase.Ended() }

// runOf identifies what is built: a commit, and how. The same is not built twice.
func runOf(s runnerapi.SourceSpec, commit string) string {
	text, err := json.Marshal(s.BuildSpec(commit, ""))
	if err != nil {
		return commit // strings and numbers: impossible
	}
	sum := sha256.Sum256(text)
	return fmt.Sprintf("%.12s-%s", commit, hex.EncodeToString(sum[:4]))
}

// tries returns how often a run was repeated.
func tries(run string) int {
	_, n, _ := strings.Cut(run, ".")
	count, _ := strconv.Atoi(n) // 0 for the first
	return count
}

// start requests the build of the commit. A build of it in progress continues, a failed one is
// repeated, and a build of anything else ends.
func (k *Keeper) start(ctx context.Context, o *object, out *brought, run string, dryRun bool) error {
	before := ""
	if out.made(o, run) {
		before = out.build.Run
		if out.build.Failure != nil {
			run = fmt.Sprintf("%s.%d", run, tries(before)+1)
		} else {
			run = before
		}
	}
	if run != before {
		if err := k.before(ctx, o, putBuild, o.wire().BuildKey(), out.commit, dryRun); err != nil {
			return err
		}
	}
	b, err := k.supersede(ctx, o, out.commit, run, dryRun)
	if err != nil || dryRun {
		return err
	}
	if run != before {
		k.noteBuild(o, b)
	}
	out.build = buildStatus(b, out.commit)
	return buildError(o, *out.build)
}

// supersede asks the policy and starts a build.
func (k *Keeper) supersede(ctx context.Context, o *object, commit, run string, dryRun bool) (runnerapi.Build, error) {
	if k.Builds == nil {
		return runnerapi.Build{}, runnerapi.NotSupported("leave build out, and name an image", "this agent builds nothing")
	}
	key, spec := o.wire().BuildKey(), o.Spec.BuildSpec(commit, run)
	if err := k.allowed(o, runnerapi.Intent{Command: putBuild, Access: runnerapi.Named, Namespace: key.Namespace, Build: &spec}); err != nil {
		return runnerapi.Build{}, err
	}
	b, err := k.Builds.Supersede(ctx, o.key(), key, spec, runnerapi.WriteOptions{DryRun: dryRun, Caller: o.caller()})
	return b, inBuild(err)
}

// inBuild renames a field of a build to the source's field.
func inBuild(err error) error {
	p := &problem.Error{}
	if !errors.As(err, &p) || p.Field == "" {
		return err
	}
	q := *p
	if q.Field == "git.url" {
		q.Field = "url"
		return &q
	}
	q.Field = "build." + strings.NewReplacer("git.credentials", "gitCredentials", "path.", "").Replace(p.Field)
	return &q
}

// see checks the build's progress. A build that is unreadable for a moment continues.
func (k *Keeper) see(ctx context.Context, o *object, out *brought) error {
	if k.Builds == nil {
		return runnerapi.NotSupported("leave build out, and name an image", "this agent builds nothing")
	}
	b, err := k.Builds.GetBuild(ctx, out.build.Key())
	p := &problem.Error{}
	switch errors.As(err, &p); {
	case err == nil && b.Spec.Run == out.build.Run:
		out.build = buildStatus(b, out.commit)
	case err == nil || p.Code == problem.NotFound:
		lost := *out.build
		lost.Phase, lost.Message = runnerapi.BuildFailed, ""
		lost.Failure = &runnerapi.BuildFailure{
			Stage: "start", Cause: "build_removed", Message: "it was removed before it had ended", Fix: "build it again: pipeops-runner source sync AGENT " + o.Name + " -n " + o.Namespace,
		}
		out.build = &lost
	case p.Passing():
		return nil
	default:
		return err
	}
	return buildError(o, *out.build)
}

func buildStatus(b runnerapi.Build, commit string) *runnerapi.SourceBuildStatus {
	s := &runnerapi.SourceBuildStatus{
		Namespace: b.Namespace, Name: b.Name, Run: b.Spec.Run, Commit: commit, Phase: b.Status.Phase, Message: b.Status.Message, Image: b.Status.Image,
	}
	if b.Status.Failure != nil {
		f := *b.Status.Failure
		f.LastLines = nil // they may be long, and are in the log
		s.Failure = &f
	}
	return s
}

// buildError returns why there is no image; nil if there may still be one.
func buildError(o *object, b runnerapi.SourceBuildStatus) error {
	f := b.Failure
	if f == nil {
		return nil
	}
	where := f.Stage
	if f.Step != "" {
		where = "step " + f.Step
	}
	if f.Line > 0 {
		where += fmt.Sprintf(", line %d of %s", f.Line, path.Join(o.Spec.Build.Context, o.Spec.Build.File()))
	}
	fix := "its log: pipeops-runner source logs AGENT " + o.Name + " -n " + o.Namespace
	if f.Fix != "" {
		fix = f.Fix + "; " + fix
	}
	return problem.New(http.StatusUnprocessableEntity, runnerapi.Code(f.Cause), fix, "the build failed: %s: %s", where, f.Message)
}

// tidy removes a build that its source no longer has, and remembers the current one.
func (k *Keeper) tidy(ctx context.Context, o *object, now *runnerapi.SourceBuildStatus) {
	if before := o.Status.Build; before != nil && (now == nil || now.Key() != before.Key()) {
		k.remove(ctx, before.Key())
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if now == nil {
		delete(k.built, o.key())
		return
	}
	if k.built == nil {
		k.built = map[runnerapi.Key]runnerapi.Key{}
	}
	k.built[o.key()] = now.Key()
}

// sweep removes builds that were left behind: those of sources that were deleted, or that stopped
// building, while no agent ran.
func (k *Keeper) sweep(ctx context.Context) {
	if k.Builds == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	of, err := k.Builds.OfSources(ctx)
	for build, source := range of {
		var orphan bool
		if orphan, err = k.orphan(ctx, build, source); err != nil {
			break
		}
		if orphan {
			k.Log.Info().Stringer("build", build).Stringer("source", source).Msg("removing a build whose source is gone")
			k.remove(ctx, build)
		}
	}
	if err != nil && ctx.Err() == nil {
		k.Log.Warn().Err(err).Msg("builds that were left behind cannot be looked for; they end by themselves")
	}
}

// orphan reports whether a build's source is gone, or builds something else by now.
func (k *Keeper) orphan(ctx context.Context, build, source runnerapi.Key) (bool, error) {
	api, err := k.client()
	if err != nil {
		return false, err
	}
	u, err := api.objects.Resource(resource).Namespace(source.Namespace).Get(ctx, source.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	o, err := read(u)
	return err == nil && (o.Spec.Build == nil || o.wire().BuildKey() != build), err
}

// gone removes the build of a deleted source. If the source was deleted while no agent ran, sweep
// does.
func (k *Keeper) gone(ctx context.Context, key runnerapi.Key) {
	k.mu.Lock()
	build, there := k.built[key]
	delete(k.built, key)
	k.mu.Unlock()
	if there {
		k.remove(ctx, build)
	}
}

func (k *Keeper) remove(ctx context.Context, build runnerapi.Key) {
	if k.Builds == nil {
		return
	}
	err := k.Builds.DeleteBuild(ctx, build, runnerapi.WriteOptions{})
	if p := (&problem.Error{}); err != nil && (!errors.As(err, &p) || p.Code != problem.NotFound) {
		k.Log.Warn().Err(err).Stringer("build", build).Msg("the build of a source that has none any more cannot be removed")
	}
}

// checkBuild refuses, before a source is written, what could never be built.
func (k *Keeper) checkBuild(ctx context.Context, o *object) error {
	if o.Spec.Build == nil {
		return nil
	}
	if o.Spec.AppSpec != "" {
		spec, err := decodeApp(o, []byte(o.Spec.AppSpec))
		if err != nil {
			return err
		}
		if spec.Image != "" {
			return problem.Errorf(problem.Invalid, "leave it out", "the image is what is built").WithField("appSpec")
		}
		spec.Image = o.Spec.Build.Image
		if bad := append(spec.ValidateName(o.wire().AppName()), spec.Validate()...); len(bad) > 0 {
			return problem.Errorf(problem.Invalid, "correct it", "%s: %s", bad[0].Field, bad[0].Message).WithField("appSpec")
		}
	}
	_, err := k.supersede(ctx, o, strings.Repeat("0", 40), "", true)
	return err
}
