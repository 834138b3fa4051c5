package helm

import (
	"context"
	"errors"
	"slices"
	"time"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/kube"
	"helm.sh/helm/v4/pkg/release/common"
	release "helm.sh/helm/v4/pkg/release/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/render"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// overhead is what a command may take beside waiting for objects and hooks, each of
// which has its own limit.
const overhead = 10 * time.Minute

// Deploy implements backend.Releases.
func (r *Releases) Deploy(ctx context.Context, key runnerapi.Key, spec runnerapi.ReleaseSpec, opts runnerapi.ReleaseOptions) (runnerapi.Release, error) {
	s, err := r.open(ctx, key, "put-release", opts.WriteOptions)
	if err != nil {
		return runnerapi.Release{}, err
	}
	if is, before, err := s.answered(ctx, opts.WriteOptions); before {
		return is, err
	}
	put := &put{session: s, spec: spec, opts: opts}
	if opts.DryRun {
		defer s.close()
		// The caller's patience ends it.
		stop := context.AfterFunc(ctx, func() { s.cancel(ctx.Err()) })
		defer stop()
		var release runnerapi.Release
		err := recovered(func() (err error) {
			release, err = put.dryRun(ctx)
			return err
		})
		return release, explained(err)
	}
	return s.work(ctx, 3*spec.TimeLimit()+overhead, func() error { return put.run(ctx) })
}

// put installs or upgrades.
type put struct {
	*session
	spec runnerapi.ReleaseSpec
	opts runnerapi.ReleaseOptions
}

// plan is what is known before anything is changed.
type plan struct {
	*rendered
	cfg     *action.Configuration
	changes []runnerapi.ReleaseObject
	values  values
	next    int // revision
}

// prepare fetches and renders the chart, and checks everything that it brings. ctx is the caller's.
func (p *put) prepare(ctx context.Context) (*plan, error) {
	if err := p.mine(); err != nil && !p.spec.Adopt {
		return nil, err
	}
	if err := p.unchanged(); err != nil {
		return nil, err
	}
	login, err := p.clients.login(ctx, p.key.Namespace, p.spec.Chart)
	if err != nil {
		return nil, err
	}
	p.lock.say("fetching the chart")
	archive, err := p.fetch.Chart(ctx, p.spec.Chart, login)
	if err != nil {
		return nil, err
	}
	if err := p.reserve(ctx, rendering); err != nil {
		return nil, err
	}
	p.lock.say("rendering the chart")
	cfg, cluster, looking, err := p.configuration(p.admit(p.opts))
	if err != nil {
		return nil, err
	}
	pl := &plan{cfg: cfg, next: p.next()}
	if pl.values, err = p.values(); err != nil {
		return nil, err
	}
	if pl.rendered, err = p.render(cfg, looking, archive, pl.values); err != nil {
		return nil, err
	}
	p.hold.Shrink(changing + pl.size)
	refused, err := p.look(cluster, pl.objects)
	if err != nil {
		return nil, err
	}
	had, err := p.had()
	if err != nil {
		return nil, err
	}
	if had != nil && p.mine() != nil { // taken over: helm itself has marked no hooks
		if cluster.adopted, err = adoptable(had); err != nil {
			return nil, err
		}
	}
	p.lock.say("comparing the chart with the cluster")
	if pl.changes, err = compare(p.ctx, cluster, p.key, pl.objects, comparison{p.forces(), refused, p.events(), cluster.adopted}); err != nil {
		return nil, err
	}
	if had == nil {
		return pl, nil
	}
	gone, err := cluster.remove(had, pl.objects)
	pl.changes = append(pl.changes, gone...)
	return pl, err
}

// unchanged refuses to upgrade another revision than that from which the spec was made. A failed
// one of this very command, sent before, does not count.
func (p *put) unchanged() error {
	has := 0
	if newest := slices.IndexFunc(p.history, func(r record) bool { return !p.own(r) }); newest >= 0 && !p.installs() {
		has = p.history[newest].version
	}
	return runnerapi.Unchanged("release "+p.key.String(), "revision", p.opts.Revision, has)
}

// wayBack asks whether an upgrade may return to the revision that is there, of whose chart only the
// name and version are known.
func (p *put) wayBack(had *release.Release) error {
	if !p.spec.RollbackOnFailure || p.opts.Admit == nil || p.installs() {
		return nil
	}
	err := p.opts.Admit(keptChart(had), nil)
	if refused, ok := errors.AsType[*problem.Error](err); ok {
		q := *refused.WithField("rollbackOnFailure")
		q.Fix = "deploy it without --rollback-on-failure"
		return &q
	}
	return err
}

// events returns those of the hooks that a deploy runs.
func (p *put) events() []string {
	if p.installs() {
		return []string{release.HookPreInstall.String(), release.HookPostInstall.String()}
	}
	return []string{release.HookPreUpgrade.String(), release.HookPostUpgrade.String()}
}

// forces reports whether fields that others have set become the release's.
func (p *put) forces() bool { return p.spec.ForceConflicts || p.spec.Adopt }

// had returns the revision whose objects are there; nil for none.
func (p *put) had() (*release.Release, error) {
	now := p.current()
	if now == nil {
		return nil, nil //nolint:nilnil // as above
	}
	had, err := one(p.store.Driver, *now)
	if err != nil {
		return nil, err
	}
	return had, p.wayBack(had)
}

// render renders the chart, for Helm too: its templates are executed only this once.
func (p *put) render(cfg *action.Configuration, looking *getter, archive []byte, v values) (*rendered, error) {
	caps, err := capabilities(looking)
	if err != nil {
		return nil, err
	}
	cfg.Capabilities = caps
	r := renderer{Process: p.Releases.opts.Render, key: p.key, revision: p.next(), upgrade: !p.installs(), spec: p.spec, caps: caps}
	r.Reserved = true
	r.Read = func(c render.Identity) { p.chart = chartIntent(c, p.spec.Chart) }
	r.Lookup = func(ctx context.Context, q render.Question) ([]byte, error) {
		return looking.lookup(ctx, q, p.admit(p.opts))
	}
	out, err := r.do(p.ctx, archive, v)
	if err == nil {
		p.store.keep(out)
	}
	return out, err
}

// look finds what no chart may bring. The policy is asked about the rest: what it refuses is
// an error, together with the others.
func (p *put) look(c *cluster, objects []*object) (refused map[*object]error, err error) {
	refused = map[*object]error{}
	var all []error
	var rest []*object
	for _, o := range objects {
		if err := p.limits().check(o); err != nil {
			refused[o] = err
			all = append(all, err)
			continue
		}
		rest = append(rest, o)
	}
	if err := c.admitted(rest); err != nil {
		return nil, problem.Together(append(all, err))
	}
	return refused, nil
}

// installs reports whether there is nothing to upgrade.
func (s *session) installs() bool {
	return len(s.history) == 0 || s.history[0].status == common.StatusUninstalled
}

// next returns the number of the revision to be.
func (s *session) next() int {
	if len(s.history) == 0 {
		return 1
	}
	return s.history[0].version + 1
}

// current returns the revision whose objects are there; nil for none.
func (s *session) current() *record {
	for i := range s.history {
		if s.history[i].status == common.StatusDeployed {
			return &s.history[i]
		}
	}
	if len(s.history) > 0 && s.history[0].status != common.StatusUninstalled {
		return &s.history[0]
	}
	return nil
}

func (p *put) dryRun(ctx context.Context) (runnerapi.Release, error) {
	pl, err := p.prepare(ctx)
	if err != nil {
		return runnerapi.Release{}, err
	}
	m := pl.chart.Metadata
	return runnerapi.Release{
		Namespace: p.key.Namespace, Name: p.key.Name, Revision: pl.next, Status: "unknown", Description: "dry run: nothing was changed", Managed: true,
		Chart: runnerapi.ReleaseChart{Name: m.Name, Version: m.Version, AppVersion: m.AppVersion}, UpdatedAt: time.Now().UTC(),
		Objects: pl.changes,
	}, nil
}

// run returns the command itself.
func (p *put) run(ctx context.Context) error {
	pl, err := p.prepare(ctx)
	if err != nil {
		return err
	}
	if p.installs() {
		return p.install(pl)
	}
	return p.upgrade(pl)
}

// install makes the first revision. The SDK is given no context of ours: it would only
// stop to wait for what continues. The client's guard ends it.
func (p *put) install(pl *plan) error {
	do := action.NewInstall(pl.cfg)
	do.ReleaseName, do.Namespace, do.Timeout = p.key.Name, p.key.Namespace, p.spec.TimeLimit()
	do.WaitStrategy, do.Replace = kube.LegacyStrategy, len(p.history) > 0
	do.ForceConflicts = p.forces()
	do.DisableOpenAPIValidation = true // the API server validates, strictly: its documents take tens of megabytes here
	_, err := do.RunWithContext(context.WithoutCancel(p.ctx), pl.literal, pl.values.given)
	return err
}

func (p *put) upgrade(pl *plan) error {
	do := action.NewUpgrade(pl.cfg)
	do.Namespace, do.Timeout, do.MaxHistory = p.key.Namespace, p.spec.TimeLimit(), maxHistory
	do.WaitStrategy, do.ServerSideApply, do.ResetValues = kube.LegacyStrategy, "true", true
	do.DisableOpenAPIValidation = true
	do.RollbackOnFailure, do.ForceConflicts = p.spec.RollbackOnFailure, p.forces()
	_, err := do.RunWithContext(context.WithoutCancel(p.ctx), p.key.Name, pl.literal, pl.values.given)
	return err
}
