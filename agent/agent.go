// Package agent runs the whole agent. It loads its identity or registers, keeps its tunnels and the
// heartbeat going, serves the Runner API on the tunnel's connections, and runs the App engine. It
// drains when it is asked to stop. Packages internal/app and internal/kube carry out commands in
// Kubernetes.
package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/pipeops/pipeops-vm-agent/agent/config"
	"github.com/pipeops/pipeops-vm-agent/agent/identity"
	"github.com/pipeops/pipeops-vm-agent/agent/update"
	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/internal/audit"
	"github.com/pipeops/pipeops-vm-agent/internal/build"
	"github.com/pipeops/pipeops-vm-agent/internal/egress"
	"github.com/pipeops/pipeops-vm-agent/internal/gateway"
	"github.com/pipeops/pipeops-vm-agent/internal/kube"
	"github.com/pipeops/pipeops-vm-agent/internal/manifests"
	"github.com/pipeops/pipeops-vm-agent/internal/policy"
	"github.com/pipeops/pipeops-vm-agent/internal/recording"
	"github.com/pipeops/pipeops-vm-agent/internal/render/cage"
	"github.com/pipeops/pipeops-vm-agent/internal/source"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
)

// How long an agent may take to stop after SIGTERM. The pod's grace period is longer than both
// together.
const (
	// handoverTimeout bounds the control plane's part: to send no more Runners here.
	handoverTimeout = 5 * time.Second
	// drainTimeout is how long running commands may go on.
	drainTimeout = 20 * time.Second
)

// Options configure an Agent.
type Options struct {
	Config  config.Config
	Version string
	Log     zerolog.Logger
	// Kubernetes is the cluster in which the agent works.
	Kubernetes *rest.Config
	// Now is the clock; nil for the machine's.
	Now func() time.Time
	// ReleaseKeys are the keys that the program was built with, separated by commas, for cluster
	// owners who name none.
	ReleaseKeys string
	// Replica distinguishes the replicas of one agent. If empty, it is the host name, which in a
	// cluster is the pod's name.
	Replica string
	// RenewalCheck is the longest time until the agent checks again whether its certificate is due
	// for renewal; a minute when zero.
	RenewalCheck time.Duration
	// Tracer creates spans of commands and heartbeats; nil for none.
	Tracer trace.TracerProvider
}

// Agent is one agent, from start to drain. It can run only once.
type Agent struct {
	opts    Options
	replica string
	log     zerolog.Logger
	now     func() time.Time
	kube    *kube.Client
	// manifests loads nothing before the first set.
	manifests *manifests.Applier
	// kubernetes is the cluster's API for Runners.
	kubernetes *kube.APIServer
	builds     *build.Client
	store      identity.Store
	health     *health
	policy     *policy.Policy
	guard      egress.Guard // of fetches for Runners
	audit      *audit.Log
	recorder   *recording.Recorder

	current atomic.Pointer[identity.Identity]
	// news is what the control plane reports about Runners.
	news *news
	// renewBy is when the control plane wants the certificate renewed, or nil. hurry signals a
	// change.
	renewBy atomic.Pointer[time.Time]
	hurry   chan struct{}
	// fresh signals a new certificate.
	fresh chan struct{}
	// cas is what this replica knows about the control plane's CAs.
	cas caState
	// nodes is what is known about the frps nodes.
	nodes nodesState
	// cluster is the UID of the agent's cluster, once it is known.
	cluster atomic.Pointer[string]
	// process names this process, and ticket is from the last answer to its heartbeat. With them
	// the control plane detects duplicate instances.
	process, ticket string
	// beat requests a heartbeat soon, because something changed.
	beat chan struct{}
	// routed requests a comparison of the routes with those that the control plane has.
	routed chan struct{}
	// public passes public requests to Services.
	public *gateway.Handler
	// updater is nil unless the cluster owner has enabled self-update.
	updater *update.Updater
	started time.Time
	// draining is set when the agent is about to stop: it no longer receives refresh requests.
	draining atomic.Bool
	// instruments count events and read the state of parts, which run with an identity.
	instruments *instruments
	parts       atomic.Pointer[parts]
}

// New returns an Agent. It opens no connections yet.
func New(opts Options) (*Agent, error) {
	seen := &clusterSeen{now: time.Now}
	kubernetes := kube.NewAPIServer(opts.Kubernetes, opts.Config.Namespace) // for Runners' requests, not the agent's
	opts.Kubernetes = seen.watched(opts.Kubernetes)
	k, err := kube.New(opts.Kubernetes, kube.Options{Namespace: opts.Config.Namespace, Namespaces: opts.Config.Namespaces})
	if err != nil {
		return nil, err
	}
	owner := newPolicy(opts.Config, k)
	guard := egress.Guard{Allowed: opts.Config.FetchAddresses, Hosts: owner.FetchHosts}
	builds, err := newBuilds(opts, guard)
	if err != nil {
		return nil, err
	}
	a := &Agent{
		opts: opts, replica: opts.Replica, log: opts.Log, now: opts.Now, kube: k, kubernetes: kubernetes, builds: builds,
		health: newHealth(), policy: owner, guard: guard, beat: make(chan struct{}, 1), routed: make(chan struct{}, 1), news: newNews(),
		hurry: make(chan struct{}, 1), fresh: make(chan struct{}, 1),
		process: rand.Text(), instruments: newInstruments(opts.Version), public: gateway.NewHandler(opts.Log),
	}
	a.manifests = manifests.New(manifests.Config{
		REST: opts.Kubernetes, Namespace: opts.Config.Namespace, Namespaces: opts.Config.Namespaces, Manage: k.Manage,
		Workloads: a.workloads(),
	})
	a.instruments.registry.MustRegister(a.readNumbers())
	a.health.ask("kubernetes", seen.state)
	a.health.ask("certificate", a.certificateState)
	if a.replica == "" {
		if a.replica, err = os.Hostname(); err != nil {
			return nil, fmt.Errorf("find this replica's name: %w", err)
		}
	}
	a.audit = audit.New(AuditStore(opts.Config, k), a.replica, opts.Log)
	a.recorder = recording.New(RecordingStore(opts.Config, k))
	if a.now == nil {
		a.now = time.Now
	}
	a.started = a.now()
	if a.store = k.IdentityStore(); opts.Config.StateDir != "" {
		a.store = identity.File{Dir: opts.Config.StateDir}
	}
	return a, nil
}

// Run runs the agent until ctx ends, and then drains it. It returns an error if the agent cannot
// continue; the error's text contains the fix.
func (a *Agent) Run(ctx context.Context) error {
	stopHealth, err := a.health.serve(ctx, a.opts.Config.HealthAddress, a.opts.Version, a.log)
	if err != nil {
		return err
	}
	defer stopHealth()
	stopPorts, err := a.servePorts(ctx)
	if err != nil {
		return err
	}
	defer stopPorts()
	if missing := cage.Missing(); len(missing) > 0 {
		a.log.Warn().Strs("missing", missing).Msg("charts are rendered in a weaker cage: the kernel or the container lacks parts of it")
	}
	defer a.notify(ctx)()
	if err := a.identify(ctx); err != nil {
		return errUnlessStopped(ctx, err)
	}
	for {
		err := a.serve(ctx)
		if !isForgotten(err) && !isCloned(err) {
			return errUnlessStopped(ctx, err)
		}
		a.log.Warn().Err(err).Msg("the control plane does not know this agent, or as another cluster's: registering again, if there is a token")
		switch again := a.registerAgain(ctx, a.current.Load()); {
		case errors.Is(again, errNoToken), isCloned(err) && again != nil: // the token may be the original's, used up long ago
			return errUnlessStopped(ctx, fmt.Errorf("%w; registering anew: %w", err, again))
		case again != nil:
			return errUnlessStopped(ctx, again)
		}
	}
}

// errUnlessStopped drops errors that only report the end of ctx.
func errUnlessStopped(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// serve runs everything that needs an identity.
func (a *Agent) serve(ctx context.Context) error {
	a.tryCluster(ctx)
	tun, err := a.newTunnels(a.current.Load())
	if err != nil {
		return err
	}
	control, err := a.client(tun)
	if err != nil {
		return err
	}
	defer control.Close()
	var sources *source.Keeper // exists before the engine runs
	engine, err := app.New(app.Config{
		RESTConfig: a.opts.Kubernetes, Log: a.log,
		Namespace: a.opts.Config.Namespace, Namespaces: a.opts.Config.Namespaces,
		Stabilization: new(app.StabilizationFor(a.opts.Config.Stabilization)),
		Announce:      announcer(control), Contents: a.kube, Replica: a.replica, Routed: a.routesChanged(),
		Led: func() {
			a.led()
			sources.Wake()
		},
	})
	if err != nil {
		return err
	}
	if sources, err = a.newSources(engine); err != nil {
		return err
	}
	a.parts.Store(&parts{tun, engine})
	if a.updater, err = a.newUpdater(engine); err != nil {
		return err
	}
	// Draining begins when ctx ends, or when another program is to take over.
	ctx, relaunch := context.WithCancelCause(ctx)
	defer relaunch(nil)
	a.health.ask("agent", func() string {
		if ctx.Err() != nil {
			return "draining"
		}
		return stateOK
	})

	// The parts outlive ctx by the drain: running commands may finish, over a tunnel that is still
	// up. If a part fails, all end.
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	parts, life := errgroup.WithContext(life)
	serving, stopServing := context.WithCancel(life)
	defer stopServing()
	parts.Go(func() error { return a.removeToken(life) })
	parts.Go(func() error { return a.watchPolicy(life) })
	parts.Go(func() error { return a.audit.Run(life) })
	parts.Go(func() error { return a.handOverAudit(life, control) })
	refusals := newRefusals(a.audit.Record, a.now, a.log)
	parts.Go(func() error { return refusals.run(life) })
	parts.Go(func() error { return engine.Run(life) })
	releases := a.releases()
	parts.Go(func() error { return releases.Run(life) })
	parts.Go(func() error { return sources.Run(life) })
	parts.Go(func() error { return a.stopper(engine.Leads).Run(life) })
	parts.Go(func() error { return tun.Run(life) })
	parts.Go(func() error { return a.watch(life, tun, engine) })
	parts.Go(func() error { return a.heartbeats(life, control, tun, engine, sources.SetRevoked) })
	parts.Go(func() error { return a.syncRoutes(life, control, tun, engine) })
	parts.Go(func() error { return a.renewals(life, control) })
	parts.Go(func() error { return a.updates(ctx, relaunch) })
	parts.Go(func() error {
		defer stopServing()
		select {
		case <-ctx.Done():
			a.leave(life, tun, engine)
		case <-life.Done():
			relaunch(nil) // or the updater, and with it the agent, would run for ever
		}
		return nil
	})
	parts.Go(func() error { return a.public.Serve(serving, tun.Public(), drainTimeout) })
	parts.Go(func() error {
		defer stop()
		return server.Serve(serving, tun.Listener(), server.ServeConfig{
			Handler: a.runnerAPI(engine, releases, sources), //nolint:contextcheck // each call has the context of its request
			TLS:     a.runnerTLS(refusals),                  //nolint:contextcheck // each handshake has its own
			Changed: a.news.next, Drain: drainTimeout, Log: a.log,
		})
	})
	if err := parts.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	if err := context.Cause(ctx); errors.Is(err, update.ErrRelaunch) {
		return err
	}
	a.log.Info().Msg("agent stopped; the apps go on running")
	return nil
}

// leave hands over to the other replicas, if there are any: one of them leads, and new connections
// of Runners go to them.
func (a *Agent) leave(life context.Context, tun *tunnel.Set, engine *app.Engine) {
	a.draining.Store(true)
	a.beatSoon()
	engine.StepDown()
	ctx, cancel := context.WithTimeout(life, handoverTimeout)
	defer cancel()
	if err := tun.Drain(ctx); err != nil {
		a.log.Warn().Err(err).Msg("the control plane may still send Runners here")
	}
}
