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

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/source/git"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Builds makes images of commits.
type Builds interface {
	// Supersede starts a run, unless this run was started before, and ends any other run in
	// progress. It records which source the run belongs to.
	Supersede(ctx context.Context, source, key runnerapi.Key, spec runnerapi.BuildSpec, opts runnerapi.WriteOptions) (runnerapi.Build, error)
	Get(ctx context.Context, key runnerapi.Key) (runnerapi.Build, error)
	Delete(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) error
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

// builder has the images of Apps built, and deploys the Apps with them.
type builder struct {
	builds  Builds // nil if this agent builds nothing
	applier *applier
	journal *journal
}

// attempt is like that of applier for an App whose image is built. Its progress is in the source's
// status and in the Jobs of the build, so that any replica can continue.
func (b *builder) attempt(ctx context.Context, o *object, dryRun bool) (brought, error) {
	out := brought{revision: o.Status.Revision, objects: o.Status.Objects, build: o.Status.Build}
	if dryRun || !o.observed() {
		return b.newest(ctx, o, out, "", dryRun)
	}
	switch last := out.build; {
	case o.Status.Phase.Applied():
		return b.newest(ctx, o, out, o.Status.Commit, false)
	case last != nil && o.Status.Phase == runnerapi.SourceBuilding:
		return b.goOn(ctx, o, out)
	case last != nil && last.Failure != nil && (tries(last.Run) >= maxTries || !slices.Contains(passing, last.Failure.Cause)):
		return b.newest(ctx, o, out, last.Commit, false)
	}
	return b.newest(ctx, o, out, "", false)
}

// newest fetches the commit of the ref, unless it is known. If the build of a known commit has
// failed, the known result is the reason.
func (b *builder) newest(ctx context.Context, o *object, out brought, known string, dryRun bool) (brought, error) {
	found, text, err := b.appText(ctx, o, o.Spec.Ref, known, &out)
	out.commit, out.tag = found.Commit, found.Tag
	if err != nil {
		return out, err
	}
	if out.commit == known {
		if out.build != nil && out.build.Commit == known {
			err = buildError(o, *out.build)
		}
		return out, err
	}
	return b.bringBuilt(ctx, o, out, text, dryRun)
}

// goOn checks the build in progress, and brings its result, even if newer commits were pushed.
// Otherwise a branch that changes faster than its build takes would never be deployed.
func (b *builder) goOn(ctx context.Context, o *object, out brought) (brought, error) {
	out.commit, out.tag = out.build.Commit, out.build.Tag
	if err := b.see(ctx, o, &out); err != nil || out.building() {
		return out, err
	}
	// The tag's signature may stand for the commit's.
	_, text, err := b.appText(ctx, o, runnerapi.GitRef{Commit: out.commit, Tag: out.tag}, "", &out)
	var g *git.Error
	switch {
	case errors.As(err, &g) && g.Reason == git.RefMissing: // a server that only serves the newest commit of a ref
		return b.newest(ctx, o, out, "", false)
	case err != nil:
		return out, err
	}
	return b.bringBuilt(ctx, o, out, text, false)
}

// appText returns the App's spec in a commit; none for a commit that is known.
func (b *builder) appText(ctx context.Context, o *object, ref runnerapi.GitRef, known string, out *brought) (found git.Found, text []byte, err error) {
	remote, err := b.applier.remote(ctx, o)
	if err != nil {
		return found, nil, err
	}
	if o.Spec.AppSpec != "" {
		found = git.Found{Commit: ref.Commit, Tag: ref.Tag}
		if ref.Commit == "" || len(remote.Signers) > 0 {
			found, err = git.Resolve(ctx, remote, ref, b.applier.Limits)
		}
		return found, []byte(o.Spec.AppSpec), err
	}
	found, files, err := git.Fetch(ctx, remote, ref, folder(o.Spec), known, b.applier.Limits)
	if err != nil || files == nil {
		return found, nil, err
	}
	if _, err := b.applier.decrypt(ctx, o, files, out); err != nil {
		return found, nil, err
	}
	text, err = appFile(o, files)
	return found, text, err
}

// bringBuilt deploys the App with the image of the commit, once that is built. Before that, it
// tries everything but the image: nothing is built for an App that cannot exist.
func (b *builder) bringBuilt(ctx context.Context, o *object, out brought, text []byte, dryRun bool) (brought, error) {
	spec, err := decodeApp(o, text)
	if err != nil {
		return out, err
	}
	if spec.Image == "" {
		run := runOf(o.Spec, out.commit)
		if dryRun || !out.has(o, run) {
			spec.Image = fmt.Sprintf("%s:%.12s", o.Spec.Build.Image, out.commit)
			if _, err := b.applier.deploy(ctx, o, out.commit, spec, true); err != nil {
				return out, err
			}
			if err := b.start(ctx, o, &out, run, dryRun); err != nil || dryRun || out.building() {
				return out, err
			}
		}
		spec.Image = out.build.Image
	}
	out.new, out.objects = true, 1
	out.revision, err = b.applier.deploy(ctx, o, out.commit, spec, dryRun)
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
func (b *builder) start(ctx context.Context, o *object, out *brought, run string, dryRun bool) error {
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
		if err := b.journal.before(ctx, o, putBuild, o.wire().BuildKey(), out.commit, dryRun); err != nil {
			return err
		}
	}
	build, err := b.supersede(ctx, o, out.commit, run, dryRun)
	if err != nil || dryRun {
		return err
	}
	if run != before {
		b.journal.noteBuild(o, build)
	}
	out.build = buildStatus(build, *out)
	return buildError(o, *out.build)
}

// supersede asks the policy and starts a build.
func (b *builder) supersede(ctx context.Context, o *object, commit, run string, dryRun bool) (runnerapi.Build, error) {
	if b.builds == nil {
		return runnerapi.Build{}, runnerapi.NotSupported("leave build out, and name an image", "this agent builds nothing")
	}
	key, spec := o.wire().BuildKey(), o.Spec.BuildSpec(commit, run)
	if err := b.applier.allowed(o, buildIntent(o, spec)); err != nil {
		return runnerapi.Build{}, err
	}
	build, err := b.builds.Supersede(ctx, o.key(), key, spec, runnerapi.WriteOptions{DryRun: dryRun, Caller: o.caller()})
	return build, inBuild(err)
}

// buildIntent is what the policy is asked about a source's build.
func buildIntent(o *object, spec runnerapi.BuildSpec) runnerapi.Intent {
	return runnerapi.Intent{Command: putBuild, Access: runnerapi.Named, Namespace: o.wire().BuildKey().Namespace, Build: &spec}
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
func (b *builder) see(ctx context.Context, o *object, out *brought) error {
	if b.builds == nil {
		return runnerapi.NotSupported("leave build out, and name an image", "this agent builds nothing")
	}
	build, err := b.builds.Get(ctx, out.build.Key())
	p := &problem.Error{}
	switch errors.As(err, &p); {
	case err == nil && build.Spec.Run == out.build.Run:
		out.build = buildStatus(build, *out)
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

func buildStatus(b runnerapi.Build, of brought) *runnerapi.SourceBuildStatus {
	s := &runnerapi.SourceBuildStatus{
		Namespace: b.Namespace, Name: b.Name, Run: b.Spec.Run, Commit: of.commit, Tag: of.tag, Phase: b.Status.Phase, Message: b.Status.Message, Image: b.Status.Image,
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

// check refuses, before a source is written, what could never be built.
func (b *builder) check(ctx context.Context, o *object) error {
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
	_, err := b.supersede(ctx, o, strings.Repeat("0", 40), "", true)
	return err
}
