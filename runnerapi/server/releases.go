package server

import (
	"context"
	"net/http"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/params"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/request"
)

const (
	// prepareTimeout bounds what a command about a release does before it is answered:
	// fetching a chart, rendering it, and comparing it with the cluster.
	prepareTimeout = 45 * time.Second
)

type (
	releaseOutput struct {
		Status int
		Body   runnerapi.Release
	}
	releaseListOutput struct{ Body runnerapi.ReleaseList }
)

// releaseCalls are the calls about Helm releases.
type releaseCalls struct {
	*calls
	releases backend.Releases
}

func (s *releaseCalls) routes() {
	const named = " The customer's policy has to name this command."
	const untilDone = " Answers 202 while it continues, and 200 with the outcome where wait was long enough: a revision that failed is an outcome. " +
		"One command at a time works on a release; another is refused (409), naming the one at work."
	registerLong(s.calls, mayGoOn(operation("put-release", "Releases", "Install or upgrade a Helm release",
		"Takes the chart from a repository, a registry or the body, renders it, and refuses it whole when an object is not allowed, before anything is changed. "+
			"A revision is deployed when its objects are ready, and failed when they are not in time. An interrupted command leaves a failed revision, and the next one continues."+
			untilDone+named+" See docs/deployer/helm-releases.md.", runnerapi.MaxReleaseBody)), s.putRelease)
	register(s.calls, operation("get-release", "Releases", "Get a Helm release",
		"Its newest revision, with the command in progress on it. It contains no values, notes or manifests.", 0), s.getRelease)
	register(s.calls, operation("list-releases", "Releases", "List the Helm releases of a namespace",
		"Also those that were created with the helm program.", 0), s.listReleases)
	register(s.calls, operation("list-release-history", "Releases", "List a release's revisions",
		"Those that are kept, the newest first; rollback can go back to each that was deployed.", 0), s.releaseHistory)
	registerLong(s.calls, mayGoOn(operation("rollback-release", "Releases", "Roll a Helm release back",
		"Goes back to a revision, as a new one."+untilDone+named, request.MaxSmallBody)), s.rollbackRelease)
	registerLong(s.calls, mayGoOn(operation("delete-release", "Releases", "Uninstall a Helm release",
		"Deletes what the release made, but for what its chart says to keep, and its history. It is uninstalled when its pods are gone too: until then the operation's progress, "+
			"and the message of each object, name what holds them. What is not gone after 5 minutes makes it failed, with what holds it as the description; "+
			"it continues in the cluster, and the release stays until it is deleted again with nothing left."+untilDone+named, 0)), s.deleteRelease)
}

// releaseOptions returns options with which the policy is asked about what a chart brings.
func (s *releaseCalls) releaseOptions(ctx context.Context, p params.Write) runnerapi.ReleaseOptions {
	opts := runnerapi.ReleaseOptions{WriteOptions: s.writeOptions(ctx, p)}
	opts.Admit = func(chart *runnerapi.ChartIntent, objects []runnerapi.ObjectIntent) error {
		return s.guard.Bring(ctx, func(i *runnerapi.Intent) { i.Chart, i.Objects = chart, objects })
	}
	return opts
}

func (s *releaseCalls) putRelease(ctx context.Context, in *struct {
	params.Release
	params.Write
	params.WaitRelease
	params.DeployRelease
	Body runnerapi.ReleaseSpec
}) (*releaseOutput, error) {
	if err := invalid(in.Body.Validate()); err != nil {
		return nil, err
	}
	return s.command(ctx, in.Release, in.WaitRelease, func(ctx context.Context, key runnerapi.Key) (runnerapi.Release, error) {
		opts := s.releaseOptions(ctx, in.Write)
		opts.Revision = in.Revision()
		return s.releases.Deploy(ctx, key, in.Body, opts)
	})
}

func (s *releaseCalls) rollbackRelease(ctx context.Context, in *struct {
	params.Release
	params.Write
	params.WaitRelease
	Body runnerapi.ReleaseRollback
}) (*releaseOutput, error) {
	if err := invalid(in.Body.Validate()); err != nil {
		return nil, err
	}
	return s.command(ctx, in.Release, in.WaitRelease, func(ctx context.Context, key runnerapi.Key) (runnerapi.Release, error) {
		return s.releases.Rollback(ctx, key, in.Body, s.releaseOptions(ctx, in.Write))
	})
}

func (s *releaseCalls) deleteRelease(ctx context.Context, in *struct {
	params.Release
	params.Write
	params.WaitRelease
}) (*releaseOutput, error) {
	return s.command(ctx, in.Release, in.WaitRelease, func(ctx context.Context, key runnerapi.Key) (runnerapi.Release, error) {
		return s.releases.Delete(ctx, key, s.releaseOptions(ctx, in.Write))
	})
}

// command begins a command about a release and waits as long as was asked for.
func (s *releaseCalls) command(ctx context.Context, p params.Release, w params.WaitRelease, begin func(context.Context, runnerapi.Key) (runnerapi.Release, error)) (*releaseOutput, error) {
	wait, err := w.Duration()
	if err != nil {
		return nil, err
	}
	key := runnerapi.Key(p)
	preparing, cancel := context.WithTimeout(ctx, prepareTimeout)
	defer cancel()
	release, err := begin(preparing, key)
	if err != nil {
		return nil, err
	}
	if release.Busy() && wait > 0 {
		if release, err = s.outcome(ctx, key, release, wait); err != nil {
			return nil, err
		}
	}
	out := &releaseOutput{Status: http.StatusOK, Body: release}
	if release.Busy() {
		out.Status = http.StatusAccepted
	}
	return out, nil
}

// outcome waits for a command's end. A release that is no longer there was
// uninstalled: the answer is what it was.
func (s *releaseCalls) outcome(ctx context.Context, key runnerapi.Key, was runnerapi.Release, wait time.Duration) (runnerapi.Release, error) {
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	now, err := s.releases.Wait(waiting, key)
	switch {
	case problem.Is(err, problem.NotFound):
		return was.Uninstalled(), nil
	case err != nil && ctx.Err() == nil && waiting.Err() != nil:
		return was, nil
	}
	return now, err
}

func (s *releaseCalls) getRelease(ctx context.Context, in *params.Release) (*releaseOutput, error) {
	release, err := s.releases.Get(ctx, runnerapi.Key(*in))
	return &releaseOutput{Status: http.StatusOK, Body: release}, err
}

func (s *releaseCalls) listReleases(ctx context.Context, in *struct {
	params.Namespace
	params.Page
}) (*releaseListOutput, error) {
	items, err := s.releases.List(ctx, in.Namespace.Namespace)
	items, rest, err := paged(in.Page, items, err, func(o runnerapi.Release) string { return keyOf(o.Namespace, o.Name) })
	return &releaseListOutput{Body: runnerapi.ReleaseList{Items: items, Page: rest}}, err
}

func (s *releaseCalls) releaseHistory(ctx context.Context, in *params.Release) (*releaseListOutput, error) {
	items, err := s.releases.History(ctx, runnerapi.Key(*in))
	return &releaseListOutput{Body: runnerapi.ReleaseList{Items: notNil(items)}}, err
}
