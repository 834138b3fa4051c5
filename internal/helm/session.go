package helm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/kube"
	"helm.sh/helm/v4/pkg/release/common"
	"helm.sh/helm/v4/pkg/storage"
	"helm.sh/helm/v4/pkg/storage/driver"

	"github.com/pipeops/pipeops-vm-agent/internal/denylist"
	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/internal/memory"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// settleTimeout is the time for recording how a command ended.
const settleTimeout = 20 * time.Second

// errStopped is the reason for aborting a command when the agent stops.
var errStopped = errors.New("the agent stops")

// session is one running command on one release.
type session struct {
	*Releases
	key     runnerapi.Key
	clients *clients
	lock    *lock
	leave   func() // to another command
	hold    *memory.Hold
	history []record // as it was when the lock was taken, the newest first
	store   *store
	deletes bool                   // the command is an uninstall that has begun
	chart   *runnerapi.ChartIntent // that the command deploys; nil until it is rendered

	ctx    context.Context // of the work: ends with the time limit, the lock and the agent
	cancel context.CancelCauseFunc
	fence  context.CancelCauseFunc
	held   chan struct{} // closed once the lock is no longer renewed
	unhold context.CancelFunc
}

// open takes the lock, and marks aborted revisions as failed. The caller closes the session.
func (r *Releases) open(ctx context.Context, key runnerapi.Key, command string, opts runnerapi.WriteOptions) (*session, error) {
	c, err := r.enter(ctx, key.Namespace)
	if err != nil {
		return nil, err
	}
	leave, err := r.place(ctx, limit.Owner{Namespace: key.Namespace, Runner: opts.Caller.Runner})
	if err != nil {
		return nil, err
	}
	l, err := r.take(ctx, c, key, command, opts.Caller)
	if err != nil {
		leave()
		return nil, err
	}
	s := &session{Releases: r, key: key, clients: c, lock: l, leave: leave, held: make(chan struct{})}
	fence, lost := context.WithCancelCause(context.WithoutCancel(ctx))
	s.fence = lost
	s.ctx, s.cancel = context.WithCancelCause(fence)
	context.AfterFunc(r.life, func() { s.cancel(errStopped) })
	d, err := r.driverFor(fence, key.Namespace, s.read)
	s.store = &store{Driver: d, fence: fence, held: l.stands, begun: make(chan struct{}), command: objectmeta.CommandDigest(opts.Command)}
	holding, unhold := context.WithCancel(fence)
	s.unhold = unhold
	go func() {
		defer close(s.held)
		l.hold(holding, lost)
	}()
	if err == nil {
		err = s.recover(ctx)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// place waits until another command may work, in all and of the owner.
func (r *Releases) place(ctx context.Context, of limit.Owner) (leave func(), err error) {
	leave, ok := r.slots.Wait(ctx, of)
	if !ok {
		return nil, problem.Errorf(problem.TooManyRequests, "wait for another command's end",
			"%d commands about releases are at work, or %d of namespace %s or of Runner %s", maxAtWork, maxOfOwner, of.Namespace, of.Runner).WithRetryAfter(5 * time.Second)
	}
	return leave, nil
}

// answered reports whether the command was carried out before, and then closes the session: its
// answer was lost, or another replica has answered it meanwhile. With the lock, no other command
// changes the release: what came after the answer is spared.
func (s *session) answered(ctx context.Context, opts runnerapi.WriteOptions) (is runnerapi.Release, before bool, err error) {
	if before = s.carriedOut(); !before {
		before, err = opts.Late(ctx)
	}
	if !before && err == nil {
		return is, false, nil
	}
	s.close()
	if err == nil {
		is, err = s.Get(ctx, s.key)
	}
	return is, true, err
}

// carriedOut reports whether the command has made a revision. If the newest one is its own and
// failed, the command may have broken off, and is carried out again.
func (s *session) carriedOut() bool {
	newest := slices.IndexFunc(s.history, s.own)
	return newest > 0 || newest == 0 && s.history[0].status != common.StatusFailed
}

// own reports whether this very command made a revision, when it was sent before.
func (s *session) own(r record) bool { return r.command != "" && r.command == s.store.command }

// recover marks a revision without a running command as failed, so that the next command continues
// from there.
func (s *session) recover(ctx context.Context) error {
	var err error
	if s.history, err = records(ctx, s.clients, s.key.Namespace, s.key.Name); err != nil || len(s.history) == 0 {
		return err
	}
	last := &s.history[0]
	if !last.pending() {
		return nil
	}
	if !last.abandoned(time.Now()) {
		return problem.Errorf(problem.Busy, "wait for its end; after 15 minutes it counts as interrupted",
			"another command has been working on release %s since %s (%s)", s.key.Name, last.updated.Format(time.RFC3339), last.status)
	}
	if err := s.fail(*last, brokeOff); err != nil {
		return err
	}
	last.status = common.StatusFailed
	s.opts.Log.Warn().Str("namespace", s.key.Namespace).Str("release", s.key.Name).Int("revision", last.version).
		Msg("helm: marked the revision of an interrupted command as failed")
	return nil
}

// fail records that a revision failed, and why.
func (s *session) fail(r record, why string) error {
	rel, err := one(s.store.Driver, r)
	if err != nil {
		return err
	}
	rel.SetStatus(common.StatusFailed, clip(why))
	return kubeproblem.From(s.store.Update(r.key, rel), "noting that a revision failed")
}

// settle leaves no revision pending after the command: Helm does so in some cases. A failed hook
// before the uninstall is in no revision of Helm's.
func (s *session) settle(why error) {
	if why == nil || s.store.fence.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(s.store.fence, settleTimeout)
	defer cancel()
	now, err := records(ctx, s.clients, s.key.Namespace, s.key.Name)
	if err == nil && len(now) > 0 && (now[0].pending() || s.deletes && now[0].status != common.StatusFailed) {
		err = s.fail(now[0], why.Error())
	}
	if err != nil {
		s.opts.Log.Warn().Err(err).Str("namespace", s.key.Namespace).Str("release", s.key.Name).
			Msg("helm: failed to record the outcome of a command; the next command determines it")
	}
}

// close releases the lock, or removes it together with the release.
func (s *session) close() {
	s.cancel(nil)
	s.unhold()
	<-s.held
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), settleTimeout)
	defer cancel()
	left, err := records(ctx, s.clients, s.key.Namespace, s.key.Name)
	if err == nil && len(left) == 0 {
		err = s.lock.remove(ctx)
	} else if err == nil {
		err = s.lock.release(ctx)
	}
	if err != nil {
		s.opts.Log.Warn().Err(err).Str("namespace", s.key.Namespace).Str("release", s.key.Name).
			Msg("helm: failed to release a lock; it expires")
	}
	s.fence(nil)
	s.hold.Release()
	s.leave()
}

// mine refuses a release that was not created through the agent.
func (s *session) mine() error {
	if len(s.history) > 0 && !ours(s.history) {
		return problem.Errorf(problem.Conflict, "leave it to its owner, or take it over: PUT it with adopt, which is pipeops-runner helm deploy --adopt",
			"release %s was not created through the agent", s.key.Name).WithField("path.name")
	}
	return nil
}

// exists refuses a command on a release that does not exist.
func (s *session) exists() error {
	if len(s.history) == 0 || s.history[0].status == common.StatusUninstalled {
		return unknown(s.key)
	}
	return s.mine()
}

// admit returns how the policy is asked about objects of the command; nil if it is not asked.
func (s *session) admit(opts runnerapi.ReleaseOptions) func([]runnerapi.ObjectIntent) error {
	if opts.Admit == nil {
		return nil
	}
	return func(objects []runnerapi.ObjectIntent) error { return opts.Admit(s.chart, objects) }
}

// configuration returns the configuration of Helm's actions. Templates get a narrower client than
// their objects.
func (s *session) configuration(admit func([]runnerapi.ObjectIntent) error) (*action.Configuration, *cluster, *getter, error) {
	helmGlobals()
	working, err := newGetter(s.ctx, s.config, s.key.Namespace)
	if err != nil {
		return nil, nil, nil, err
	}
	looking := working.forTemplates(s.ctx, s.config)
	logger := logTo(s.opts.Log)
	client := kube.New(working)
	client.Namespace = s.key.Namespace
	client.SetLogger(logger)
	c := &cluster{Client: client, ctx: s.ctx, key: s.key, limits: s.limits(), workloads: s.opts.Workloads, patience: s.opts.Patience, admit: admit, say: s.lock.say, held: s.lock.stands, waits: s.waits}
	cfg := action.NewConfiguration(action.ConfigurationSetLogger(logger))
	cfg.RESTClientGetter, cfg.KubeClient = looking, c
	cfg.HookOutputFunc = func(_, _, _ string) io.Writer { return io.Discard }
	cfg.Releases = storage.Init(s.store)
	cfg.Releases.SetLogger(logger)
	cfg.Releases.MaxHistory = maxHistory
	return cfg, c, looking, nil
}

// waits releases the command's memory: pods may take minutes, and what the command still has in
// memory is measured.
func (s *session) waits() { s.hold.Release() }

func (s *session) limits() limits { return s.Releases.limits(s.key.Namespace) }

// limits returns those of a release in a namespace.
func (r *Releases) limits(namespace string) limits {
	return limits{denylist.Agent{Namespace: r.opts.Namespace, ServiceAccount: r.opts.ServiceAccount}, namespace}
}

// work runs a command until it is done, without a time limit for the caller, and returns once it
// has begun: from then on the release shows its progress. An earlier error is returned.
func (s *session) work(ctx context.Context, limit time.Duration, do func() error) (runnerapi.Release, error) {
	if !s.begin() {
		s.close()
		return runnerapi.Release{}, problem.Errorf(problem.Unavailable, "send it again", "the agent stops").WithRetryAfter(5 * time.Second)
	}
	done := make(chan error, 1)
	go func() {
		defer s.working.Done()
		err := recovered(do)
		if cause := context.Cause(s.ctx); err != nil && cause != nil && !errors.Is(err, cause) {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		s.settle(err)
		s.note(err)
		s.close() // a caller that sees the end may send the next command
		done <- err
	}()
	stop := time.AfterFunc(limit, func() { s.cancel(fmt.Errorf("it took longer than %s", limit)) })
	select {
	case err := <-done:
		stop.Stop()
		if err != nil && !s.hasBegun() {
			return runnerapi.Release{}, explained(err)
		}
		return s.Get(ctx, s.key)
	case <-s.store.begun:
		return s.Get(ctx, s.key)
	case <-ctx.Done():
		if s.hasBegun() {
			return s.Get(context.WithoutCancel(ctx), s.key)
		}
		s.cancel(ctx.Err())
		return runnerapi.Release{}, ctx.Err()
	}
}

func (s *session) hasBegun() bool {
	select {
	case <-s.store.begun:
		return true
	default:
		return false
	}
}

// note logs a command's end, without text that may quote values.
func (s *session) note(err error) {
	e := s.opts.Log.Info()
	if err != nil {
		e = s.opts.Log.Warn()
	}
	op := s.lock.operation()
	e.Str("namespace", s.key.Namespace).Str("release", s.key.Name).Str("command", op.Command).Str("runner", op.Runner).
		Bool("failed", err != nil).Dur("took", time.Since(op.StartedAt)).Msg("helm: command finished")
}

// recovered turns a panic into an error: the SDK processes untrusted charts.
func recovered(do func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = problem.Errorf(problem.Invalid, "report it, with the chart", "Helm crashed on this chart").WithField("chart")
		}
	}()
	return do()
}

// explained turns Helm's errors into problems.
func explained(err error) error {
	p := &problem.Error{}
	switch {
	case err == nil:
		return nil
	case errors.As(err, &p):
		return p
	case errors.Is(err, driver.ErrReleaseNotFound):
		return problem.Errorf(problem.NotFound, "list the releases: pipeops-runner helm list AGENT", "the release does not exist")
	case errors.Is(err, driver.ErrReleaseExists):
		return problem.Errorf(problem.Busy, "send it again", "another command made this revision at the same time")
	case errors.Is(err, errStopped):
		return problem.Errorf(problem.Unavailable, "send it again", "the agent stops").WithRetryAfter(5 * time.Second)
	}
	err = kubeproblem.From(err, "working on the release")
	if errors.As(err, &p) {
		return withRights(p)
	}
	return problem.Errorf(problem.Invalid, "correct the chart or its values", "%s", clip(err.Error())).WithField("chart")
}

// logTo passes on Helm's own fixed messages. It drops their attributes, which may quote what was
// sent.
func logTo(log logger) slog.Handler { return handler{log} }
