// Package agent runs the whole agent. It loads its identity or registers, keeps its tunnels and the
// heartbeat going, serves the Runner API on the tunnel's connections, and runs the App engine. It
// drains when it is asked to stop. Packages internal/app and internal/kube carry out commands in
// Kubernetes.
package agent

import (
	"context"
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
	"github.com/pipeops/pipeops-vm-agent/agent/routes"
	"github.com/pipeops/pipeops-vm-agent/agent/update"
	"github.com/pipeops/pipeops-vm-agent/agent/visitors"
	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/internal/audit"
	"github.com/pipeops/pipeops-vm-agent/internal/build"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/egress"
	"github.com/pipeops/pipeops-vm-agent/internal/gateway"
	"github.com/pipeops/pipeops-vm-agent/internal/imagesignature"
	"github.com/pipeops/pipeops-vm-agent/internal/kube"
	"github.com/pipeops/pipeops-vm-agent/internal/manifests"
	"github.com/pipeops/pipeops-vm-agent/internal/policy"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/recording"
	"github.com/pipeops/pipeops-vm-agent/internal/render/cage"
	"github.com/pipeops/pipeops-vm-agent/internal/sdnotify"
	"github.com/pipeops/pipeops-vm-agent/internal/source"
	"github.com/pipeops/pipeops-vm-agent/internal/traffic"
	"github.com/pipeops/pipeops-vm-agent/internal/wake"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/transport"
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
	// DirectPort is the port of HTTPS at the cluster's load balancer; 443 if zero. Tests change it.
	DirectPort int
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
	health     *health
	policy     *policy.Policy
	guard      egress.Guard // of fetches for Runners
	audit      *audit.Log
	recorder   *recording.Recorder

	// What keeps the agent registered and connected; compose makes it.
	current    *currentIdentity
	clients    *clients
	enrolment  *enrolment
	renewal    *renewal
	tunnels    *tunnels
	heartbeats *heartbeats
	checkup    *checkup
	updates    *selfUpdate

	beat           wake.Signal    // requests a heartbeat soon, because something changed
	news           *news          // what the control plane reports about Runners
	componentWatch componentWatch // the heartbeats' alone
	routes         *routes.Registrar
	public         *gateway.Handler // passes public requests to Services
	visitors       *visitors.SignIn
	// instruments count events and read the state of parts, which run with an identity.
	instruments *instruments
	parts       atomic.Pointer[parts]
}

// New returns an Agent. It opens no connections yet.
func New(opts Options) (*Agent, error) {
	seen := &clusterSeen{now: time.Now}
	kubernetes := kube.NewAPIServer(opts.Kubernetes, opts.Config.Namespace) // for Runners' requests, not the agent's
	opts.Kubernetes = seen.watched(opts.Kubernetes)
	k, err := kube.New(opts.Kubernetes, kube.Options{Namespace: opts.Config.Namespace, ServiceAccount: opts.Config.ServiceAccount, Namespaces: opts.Config.Namespaces})
	if err != nil {
		return nil, err
	}
	owner := newPolicy(opts.Config, k)
	guard := egress.Guard{Allowed: opts.Config.FetchAddresses, Hosts: owner.FetchHosts}
	images := imagesignature.New(imagesignature.Config{Secret: k.Secrets().PullSecret, Guard: guard})
	owner.SetImages(images.Verify)
	owner.SetSigstore(images.Sigstore)
	builds, err := newBuilds(opts, owner, guard)
	if err != nil {
		return nil, err
	}
	a := &Agent{
		opts: opts, replica: opts.Replica, log: opts.Log, now: opts.Now, kube: k, kubernetes: kubernetes, builds: builds,
		health: newHealth(), policy: owner, guard: guard, beat: wake.New(), news: newNews(),
		instruments: newInstruments(opts.Version), public: gateway.NewHandler(opts.Tracer, opts.Log),
	}
	a.public.Endpoints = gateway.Endpoints{Allowed: opts.Config.DirectAddresses, Port: opts.DirectPort}
	a.manifests = manifests.New(manifests.Config{
		REST: opts.Kubernetes, Namespace: opts.Config.Namespace, Namespaces: opts.Config.Namespaces, Manage: k.Namespaces().Manage,
		Workloads: a.workloads(),
	})
	if a.replica == "" {
		if a.replica, err = os.Hostname(); err != nil {
			return nil, fmt.Errorf("find this replica's name: %w", err)
		}
	}
	if a.now == nil {
		a.now = time.Now
	}
	a.audit = audit.New(AuditStore(opts.Config, k), a.replica, opts.Log)
	a.recorder = recording.New(RecordingStore(opts.Config, k))
	a.routes = routes.New(routes.Config{Enabled: opts.Config.EnableIngressSync, Policy: owner, Public: a.public, Log: a.log, Replica: a.replica, Traffic: traffic.NewSharing(a.public.Traffic, k.TrafficStore(), a.log)})
	a.compose(seen)
	a.instruments.registry.MustRegister(a.readNumbers())
	a.health.ask("kubernetes", seen.state)
	a.health.ask("certificate", a.current.certificateState)
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
		a.log.Warn().Strs("missing", missing).Msg("charts are rendered in a weaker sandbox: the kernel or the container lacks parts of it")
	}
	defer sdnotify.Start(ctx, a.health.status, a.log)()
	if err := a.enrolment.identify(ctx); err != nil {
		return errUnlessStopped(ctx, err)
	}
	for {
		err := a.serve(ctx)
		if !controlapi.Forgotten(err) && !controlapi.Cloned(err) && !problem.Is(err, controlapi.CodeCertificateUnknown) {
			return errUnlessStopped(ctx, err)
		}
		a.log.Warn().Err(err).Msg("the control plane does not accept this agent's identity; registering again if there is a token")
		switch again := a.enrolment.registerAgain(ctx, a.current.Load()); {
		case errors.Is(again, errNoToken), controlapi.Cloned(err) && again != nil: // the token may be the original's, used up long ago
			return errUnlessStopped(ctx, fmt.Errorf("%w; registering again: %w", err, again))
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
	tun, err := a.tunnels.open(ctx)
	if err != nil {
		return err
	}
	control, err := a.clients.registered(tun)
	if err != nil {
		return err
	}
	defer control.Close()
	var sources *source.Keeper // exists before the engine runs
	engine, err := app.New(app.Config{
		RESTConfig: a.opts.Kubernetes, Log: a.log,
		Namespace: a.opts.Config.Namespace, Namespaces: a.opts.Config.Namespaces,
		Stabilization: new(app.StabilizationFor(a.opts.Config.Stabilization)),
		Announce:      sendEvents(control), Contents: a.kube.Contents(), Replica: a.replica, Routed: a.routes.Changed(),
		DirectAddresses: a.opts.Config.DirectAddresses, SignIn: a.signIn(),
		Led: func() {
			a.beat.Raise()
			a.checkup.due.Raise()
			a.routes.Soon()
			sources.Wake()
		},
	})
	if err != nil {
		return err
	}
	if sources, err = a.newSources(engine); err != nil {
		return err
	}
	a.parts.Store(&parts{tun, engine, control})
	if err := a.updates.open(engine); err != nil {
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
	removal := &tokenRemoval{config: a.opts.Config, kube: a.kube, health: a.health, log: a.log}
	parts.Go(func() error { return removal.run(life) })
	parts.Go(func() error { return a.watchPolicy(life) })
	parts.Go(func() error { return a.audit.Run(life) })
	copies := &auditCopy{audit: a.audit, store: AuditStore(a.opts.Config, a.kube), log: a.log}
	parts.Go(func() error { return copies.run(life, control) })
	refusals := newRefusals(a.audit.Record, a.now, a.log)
	parts.Go(func() error { return refusals.run(life) })
	parts.Go(func() error { return engine.Run(life) })
	releases := a.releases()
	parts.Go(func() error { return releases.Run(life) })
	parts.Go(func() error { return sources.Run(life) })
	parts.Go(func() error { return a.stopper(engine.Leads).Run(life) })
	parts.Go(func() error { return tun.Run(life) })
	parts.Go(func() error { return a.tunnels.watch(life, tun, engine) })
	parts.Go(func() error { return a.checkup.run(life, engine.Leads) })
	parts.Go(func() error { return a.heartbeats.run(life, control, tun, engine, sources) })
	parts.Go(func() error { return a.routes.Traffic.Run(life) })
	parts.Go(func() error { return a.routes.Run(life, control, tun, engine) })
	parts.Go(func() error { return a.renewal.run(life, control) })
	parts.Go(func() error { return a.updates.run(ctx, relaunch) })
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
		return transport.Serve(serving, tun.Listener(), transport.ServeConfig{
			Handler: a.runnerAPI(control, engine, releases, sources),
			TLS:     a.runnerTLS(refusals), //nolint:contextcheck // each handshake has its own
			Changed: a.news.next, Drain: drainTimeout, Log: a.log,
		})
	})
	if err := parts.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	if err := context.Cause(ctx); errors.Is(err, update.ErrRelaunch) {
		return err
	}
	a.log.Info().Msg("agent stopped; Apps keep running")
	return nil
}

// leave hands over to the other replicas, if there are any: one of them leads, and new connections
// of Runners go to them.
func (a *Agent) leave(life context.Context, tun *tunnel.Set, engine *app.Engine) {
	a.heartbeats.draining.Store(true)
	a.beat.Raise()
	engine.StepDown()
	a.public.Leave(life)
	ctx, cancel := context.WithTimeout(life, handoverTimeout)
	defer cancel()
	if err := tun.Drain(ctx); err != nil {
		a.log.Warn().Err(err).Msg("the control plane may still route Runners here")
	}
	a.public.Finish(life)
}
