package server

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/params"
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

func (s *server) releaseRoutes() {
	const named = " The customer's policy has to name this command."
	const untilDone = " Answers 202 while it goes on, and 200 with the outcome where wait was long enough: a revision that failed is an outcome. " +
		"One command at a time works on a release; another is refused (409), naming the one at work."
	registerLong(s, mayGoOn(operation("put-release", "Releases", "Install or upgrade a Helm release",
		"Takes the chart from a repository, a registry or the body, renders it, and refuses it whole when an object is not allowed, before anything is changed. "+
			"A revision is deployed when its objects are ready, and failed when they are not in time. A command that broke off leaves a failed revision, and the next one goes on."+
			untilDone+named+" See docs/releases.md.", runnerapi.MaxReleaseBody)), s.putRelease)
	register(s, operation("get-release", "Releases", "Get a Helm release",
		"Its newest revision, with the command that is at work on it. Neither values nor notes nor manifests are told.", 0), s.getRelease)
	register(s, operation("list-releases", "Releases", "List the Helm releases of a namespace",
		"Also those that were made with the helm program.", 0), s.listReleases)
	register(s, operation("list-release-history", "Releases", "List a release's revisions",
		"Those that are kept, the newest first; rollback can go back to each that was deployed.", 0), s.releaseHistory)
	registerLong(s, mayGoOn(operation("rollback-release", "Releases", "Roll a Helm release back",
		"Goes back to a revision, as a new one."+untilDone+named, maxSmallBody)), s.rollbackRelease)
	registerLong(s, mayGoOn(operation("delete-release", "Releases", "Uninstall a Helm release",
		"Deletes what the release made, but for what its chart says to keep, and its history. It is uninstalled when its pods are gone too: until then the operation's progress, "+
			"and the message of each object, name what holds them. What is not gone after 5 minutes makes it failed, with what holds it as the description; "+
			"it goes on in the cluster, and the release stays until it is deleted again with nothing left."+untilDone+named, 0)), s.deleteRelease)
}

// releaseOptions returns options with which the policy is asked about what a chart brings.
func (s *server) releaseOptions(ctx context.Context, p params.Write) runnerapi.ReleaseOptions {
	opts := runnerapi.ReleaseOptions{WriteOptions: s.writeOptions(ctx, p)}
	if s.Policy != nil {
		opts.AdmitObjects = func(objects []runnerapi.ObjectIntent) error {
			return s.bring(ctx, func(i *runnerapi.Intent) { i.Objects = objects })
		}
	}
	return opts
}

func (s *server) putRelease(ctx context.Context, in *struct {
	params.Release
	params.Write
	params.WaitRelease
	Body runnerapi.ReleaseSpec
}) (*releaseOutput, error) {
	if err := invalid(in.Body.Validate()); err != nil {
		return nil, err
	}
	return s.command(ctx, in.Release, in.WaitRelease, func(ctx context.Context, key runnerapi.Key) (runnerapi.Release, error) {
		return s.Releases.PutRelease(ctx, key, in.Body, s.releaseOptions(ctx, in.Write))
	})
}

func (s *server) rollbackRelease(ctx context.Context, in *struct {
	params.Release
	params.Write
	params.WaitRelease
	Body runnerapi.ReleaseRollback
}) (*releaseOutput, error) {
	if err := invalid(in.Body.Validate()); err != nil {
		return nil, err
	}
	return s.command(ctx, in.Release, in.WaitRelease, func(ctx context.Context, key runnerapi.Key) (runnerapi.Release, error) {
		return s.Releases.RollbackRelease(ctx, key, in.Body, s.releaseOptions(ctx, in.Write))
	})
}

func (s *server) deleteRelease(ctx context.Context, in *struct {
	params.Release
	params.Write
	params.WaitRelease
}) (*releaseOutput, error) {
	return s.command(ctx, in.Release, in.WaitRelease, func(ctx context.Context, key runnerapi.Key) (runnerapi.Release, error) {
		return s.Releases.DeleteRelease(ctx, key, s.releaseOptions(ctx, in.Write))
	})
}

// command begins a command about a release and waits as long as was asked for.
func (s *server) command(ctx context.Context, p params.Release, w params.WaitRelease, begin func(context.Context, runnerapi.Key) (runnerapi.Release, error)) (*releaseOutput, error) {
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

// outcome waits for a command's end. A release that is not there any more was
// uninstalled: the answer is what it was.
func (s *server) outcome(ctx context.Context, key runnerapi.Key, was runnerapi.Release, wait time.Duration) (runnerapi.Release, error) {
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	now, err := s.Releases.WaitRelease(waiting, key)
	known := &runnerapi.Error{}
	switch {
	case errors.As(err, &known) && known.Code == problem.NotFound:
		return was.Uninstalled(), nil
	case err != nil && ctx.Err() == nil && waiting.Err() != nil:
		return was, nil
	}
	return now, err
}

// releaseCommands are those that go on after they were answered.
var releaseCommands = map[string]bool{"put-release": true, "rollback-release": true, "delete-release": true}

// releaseOutcome returns what became of a command about a release, by the revision that it was
// answered with.
func (s *server) releaseOutcome(ctx context.Context, r runnerapi.Record) (runnerapi.OperationState, string, error) {
	var was runnerapi.Release
	if len(r.Answer) > 0 {
		if err := json.Unmarshal(r.Answer, &was); err != nil {
			return "", "", err
		}
	}
	history, err := s.Releases.ReleaseHistory(ctx, r.Target)
	known := &runnerapi.Error{}
	switch {
	case errors.As(err, &known) && known.Code == problem.NotFound && (r.Command == "delete-release" || was.Status == runnerapi.ReleaseUninstalled):
		return runnerapi.OperationSucceeded, "", nil
	case errors.As(err, &known) && known.Code == problem.NotFound:
		return runnerapi.OperationSuperseded, "the release is not there any more", nil
	case err != nil:
		return "", "", err
	}
	for i, at := range history {
		switch {
		case was.Revision != 0 && at.Revision != was.Revision || was.Revision == 0 && i > 0:
		case at.Busy():
			return runnerapi.OperationPending, at.Operation.Progress, nil
		case at.Status == runnerapi.ReleaseFailed:
			return runnerapi.OperationFailed, at.Description, nil
		case r.Command == "delete-release":
			return runnerapi.OperationSuperseded, "the release was deployed again", nil
		case at.Status == runnerapi.ReleaseDeployed || at.Status == runnerapi.ReleaseSuperseded:
			return runnerapi.OperationSucceeded, "", nil
		default:
			return runnerapi.OperationPending, at.Description, nil
		}
	}
	return runnerapi.OperationSuperseded, "the revision is not kept any more", nil
}

func (s *server) getRelease(ctx context.Context, in *params.Release) (*releaseOutput, error) {
	release, err := s.Releases.GetRelease(ctx, runnerapi.Key(*in))
	return &releaseOutput{Status: http.StatusOK, Body: release}, err
}

func (s *server) listReleases(ctx context.Context, in *params.Namespace) (*releaseListOutput, error) {
	items, err := s.Releases.ListReleases(ctx, in.Namespace)
	return &releaseListOutput{Body: runnerapi.ReleaseList{Items: notNil(items)}}, err
}

func (s *server) releaseHistory(ctx context.Context, in *params.Release) (*releaseListOutput, error) {
	items, err := s.Releases.ReleaseHistory(ctx, runnerapi.Key(*in))
	return &releaseListOutput{Body: runnerapi.ReleaseList{Items: notNil(items)}}, err
}
