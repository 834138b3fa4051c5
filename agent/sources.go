package agent

import (
	"context"
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/internal/manifests"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/proxy"
	"github.com/pipeops/pipeops-vm-agent/internal/render"
	"github.com/pipeops/pipeops-vm-agent/internal/source"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
)

// newSources follows Git repositories with what the agent has for Runners.
func (a *Agent) newSources(engine *app.Engine) (*source.Keeper, error) {
	command, err := render.Command()
	if err != nil {
		return nil, fmt.Errorf("find the agent's own program: %w", err)
	}
	return source.New(a.policy, source.Config{
		REST: a.opts.Kubernetes, Agent: a.opts.Config.ClusterName, Namespace: a.opts.Config.Namespace, Namespaces: a.opts.Config.Namespaces,
		Apps: engine, Manifests: setsOfSources{a.manifests}, Builds: a.builds, Previews: a.kube.Namespaces(), SignIn: a.visitors.Has, Audit: a.audit.Record, Leads: engine.Leads,
		Heard: a.hearOfRevoked, Before: a.recordFirst,
		Render: command, Proxy: proxy.FromEnvironment(), Guard: a.guard, Log: a.log,
	}), nil
}

// revokedPatience is how long Git sources wait at the start for the control plane to list the
// revoked Runners. Without it they go on: what was suspended before stays so.
const revokedPatience = 15 * time.Second

func (a *Agent) hearOfRevoked(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, revokedPatience)
	defer cancel()
	if err := a.news.current(ctx); err != nil {
		a.log.Info().Msg("reconciling Git sources without the control plane's list of revoked Runners: it has not been received yet")
	}
}

// recordWait is how long what a source brings waits for its audit record to be kept.
const recordWait = 10 * time.Second

// recordFirst stores a record before its action, if the policy requires that.
func (a *Agent) recordFirst(ctx context.Context, r runnerapi.AuditRecord) error {
	if !a.policy.AuditRequired() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, recordWait)
	defer cancel()
	if err := a.audit.Keep(ctx, r); err != nil {
		a.log.Warn().Err(err).Str("command", r.Command).Msg("source not applied: its audit record cannot be written, and the policy requires one")
		return backend.AuditUnavailable()
	}
	return nil
}

// setsOfSources applies what a source brings as a set.
type setsOfSources struct{ applier *manifests.Applier }

// setPrefix keeps sets of sources from those that Runners apply themselves.
const setPrefix = "git-"

// Read implements source.Manifests.
func (setsOfSources) Read(r io.Reader) ([]*unstructured.Unstructured, func(*unstructured.Unstructured) string, error) {
	docs, err := manifests.Read(r)
	return docs.Objects, docs.Where, err
}

// Get implements source.Manifests.
func (s setsOfSources) Get(ctx context.Context, source runnerapi.Key) (runnerapi.ManifestSet, error) {
	return s.applier.Get(ctx, manifests.Set{Namespace: source.Namespace, Name: setPrefix + source.Name})
}

// Apply implements source.Manifests. Its error names the first object that could not be applied,
// and the number of all.
func (s setsOfSources) Apply(ctx context.Context, set source.Set) error {
	result, err := s.applier.Apply(ctx, manifests.Set{Namespace: set.Namespace, Name: setPrefix + set.Name}, set.Objects, manifests.Options{
		DryRun: set.DryRun, Prune: set.Prune, Force: set.Force, Where: set.Where, Unread: set.Unread, Admit: set.Admit, By: set.By,
	})
	if err != nil {
		return err
	}
	if result.Problem != nil {
		return result.Problem
	}
	for _, o := range result.Objects {
		if o.Action == runnerapi.ApplyFailed && o.Problem != nil {
			p := *o.Problem
			p.Detail = fmt.Sprintf("%d of %d objects failed, the others were applied; %s: %s", result.Failed, len(result.Objects), o.ManifestRef, p.Detail)
			return &p
		}
	}
	if result.Failed > 0 {
		return problem.Errorf(problem.Internal, "look at the agent's log", "%d of %d objects failed", result.Failed, len(result.Objects))
	}
	return nil
}
