package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/zerologr"
	"github.com/rs/zerolog"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/pipeops/pipeops-vm-agent/internal/app/diagnose"
	"github.com/pipeops/pipeops-vm-agent/internal/kubeclient"
	"github.com/pipeops/pipeops-vm-agent/internal/managed"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server"
)

// stopTimeout bounds how long Run waits for its parts after ctx has ended.
const stopTimeout = 10 * time.Second

// Config configures an Engine.
type Config struct {
	RESTConfig *rest.Config
	Namespace  string // the agent's own
	// Namespaces are the only ones that the agent may see and manage; empty for all.
	Namespaces []string
	Log        zerolog.Logger
	// Announce sends events to the control plane, with the leadership under which they are sent. It
	// is called with the same events again until it returns nil, and without events at the
	// beginning of a leadership. If it is nil, nothing is announced.
	Announce func(ctx context.Context, by Leadership, events []Event) error
	// Replica distinguishes the replicas of one agent; the host's name if empty.
	Replica string
	// Lease is how long a leader that died is waited for; 8 s when zero.
	Lease time.Duration
	// Led is called each time this replica begins to lead. It may be nil, and must
	// not block.
	Led func()
	// Routed is called when Routes may answer something else than before. It may be
	// nil, and must not block.
	Routed func()
	// Contents reports on the Secrets and ConfigMaps that Apps use. If it is nil, no App restarts
	// because of them.
	Contents Contents
	// Stabilization is how long pods have to stay ready before their App is healthy; the
	// default when nil.
	Stabilization *diagnose.Stabilization
	// Sizing is how right-sizing measures; the zero value for the defaults.
	Sizing Sizing
}

// StabilizationFor returns the default with another time for pods without probes.
func StabilizationFor(unprobed time.Duration) diagnose.Stabilization {
	return diagnose.WithUnprobed(unprobed)
}

// Engine keeps Apps true and implements runnerapi.Apps.
type Engine struct {
	cfg         Config
	log         zerolog.Logger
	now         func() time.Time
	mgr         manager.Manager
	cached      client.Client // reads from the cache, never older than its own writes
	live        client.Client // reads from the API server
	pods        corev1client.PodsGetter
	core        rest.Interface // of the core API, for what has no typed client
	rest        *rest.Config
	hub         *hub
	announcer   *announcer
	leadership  *leadership
	contents    lookedAt
	troubles    troubles
	secretTypes secretTypes

	stabilization diagnose.Stabilization

	sizer        *sizer
	eventWatches *eventWatches
	ports        *ports
	traces       traces
	ready        atomic.Bool
	public       atomic.Pointer[map[string]PublicHost] // of the gateway; nil while it is not known
	leadsToPods  atomic.Bool                           // a route leads to a Service without an address of its own
	// noRechecks leaves Apps alone until an event about them arrives, or until a grace of a second
	// has passed. Only tests set it.
	noRechecks bool
}

var (
	_ server.Apps     = (*Engine)(nil)
	_ server.Outcomes = (*Engine)(nil)
)

// New prepares an Engine; nothing happens in the cluster before Run.
func New(cfg Config) (*Engine, error) {
	adoptLoggers(cfg.Log)
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	e := &Engine{cfg: cfg, log: cfg.Log, now: time.Now, hub: &hub{},
		stabilization: ptr.Deref(cfg.Stabilization, diagnose.DefaultStabilization)}
	rc := kubeclient.Config(cfg.RESTConfig)
	mapper := newMapper()
	logger := zerologr.New(ptr.To(cfg.Log.Level(zerolog.WarnLevel)))
	e.mgr, err = manager.New(rc, manager.Options{
		Scheme: scheme, Logger: logger,
		MapperProvider:          func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mapper, nil },
		Cache:                   cacheOptions(cfg.Namespaces),
		Client:                  clientOptions(),
		Metrics:                 metricsserver.Options{BindAddress: "0"},
		GracefulShutdownTimeout: ptr.To(stopTimeout),
		Controller:              config.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		return nil, fmt.Errorf("prepare the App engine: %w", err)
	}
	e.cached = e.mgr.GetClient()
	e.live, err = client.New(rc, client.Options{Scheme: scheme, Mapper: mapper, HTTPClient: e.mgr.GetHTTPClient()})
	if err != nil {
		return nil, fmt.Errorf("prepare the App engine's client: %w", err)
	}
	core, err := corev1client.NewForConfigAndClient(rc, e.mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("prepare the App engine's client for logs and events: %w", err)
	}
	e.pods, e.core, e.rest = core, core.RESTClient(), rc
	e.announcer = newAnnouncer(e)
	if e.leadership, err = newLeadership(cfg, rc); err != nil {
		return nil, err
	}
	e.sizer = newSizer(e, cfg.Sizing)
	e.eventWatches = newEventWatches(core, e.leadership.resync)
	e.ports = newPorts(e)
	return e, e.wire()
}

// scope returns where Apps may be.
func (e *Engine) scope() managed.Scope {
	return managed.Scope{Agent: e.cfg.Namespace, Only: e.cfg.Namespaces}
}

// wire hangs the parts into the manager.
func (e *Engine) wire() error {
	if err := e.addController(); err != nil {
		return fmt.Errorf("prepare the App controller: %w", err)
	}
	if err := e.mgr.Add(always(e.becomeReady)); err != nil {
		return err
	}
	if err := e.addLeadership(e.mgr); err != nil {
		return err
	}
	for _, part := range []manager.Runnable{e.sizer, e.eventWatches, e.ports} {
		if err := e.mgr.Add(part); err != nil {
			return err
		}
	}
	return e.mgr.Add(e.announcer)
}

// always is a part that runs in every replica of the agent, leading or not.
type always func(context.Context) error

func (f always) Start(ctx context.Context) error { return f(ctx) }

// NeedLeaderElection makes it a manager.LeaderElectionRunnable.
func (always) NeedLeaderElection() bool { return false }

// becomeReady runs once the caches are filled.
func (e *Engine) becomeReady(ctx context.Context) error {
	e.ready.Store(true)
	e.routed()
	<-ctx.Done()
	e.ready.Store(false)
	return nil
}

// Run works until ctx ends and has joined all it started when it returns. It
// fails at once when the cluster lacks the App resource.
func (e *Engine) Run(ctx context.Context) error {
	if err := e.checkCRD(ctx); err != nil {
		return err
	}
	if err := e.watch(ctx); err != nil {
		return err
	}
	if err := e.mgr.Start(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("run the App engine: %w", err)
	}
	return nil
}

// watch starts the caches and connects the hub and the announcer to their changes.
func (e *Engine) watch(ctx context.Context) error {
	for _, o := range append(wholes(), &appsv1.ReplicaSet{}, &batchv1.Job{}, namespaceMeta()) {
		if _, err := e.mgr.GetCache().GetInformer(ctx, o, blockless); err != nil {
			return fmt.Errorf("watch %T: %w", o, err)
		}
	}
	for o, notify := range map[client.Object]func(client.Object){
		&App{}: func(o client.Object) {
			e.hub.notify(runnerapi.Key{Namespace: o.GetNamespace(), Name: o.GetName()})
			e.announcer.look()
			e.routed()
		},
		&networkingv1.Ingress{}: func(client.Object) { e.routed() },
		&corev1.Service{}:       func(client.Object) { e.routed() },
		&corev1.Pod{}: func(o client.Object) {
			if e.leadsToPods.Load() {
				e.routed()
			}
			e.hub.notify(runnerapi.Key{Namespace: o.GetNamespace(), Name: o.GetLabels()[managed.App]})
		},
	} {
		informer, err := e.mgr.GetCache().GetInformer(ctx, o, blockless)
		if err != nil {
			return fmt.Errorf("watch %T: %w", o, err)
		}
		if _, err := informer.AddEventHandler(onChange(notify)); err != nil {
			return fmt.Errorf("watch %T: %w", o, err)
		}
	}
	return nil
}

func onChange(notify func(client.Object)) cache.ResourceEventHandler {
	tell := func(in any) {
		if gone, ok := in.(cache.DeletedFinalStateUnknown); ok {
			in = gone.Obj
		}
		if o, ok := in.(client.Object); ok {
			notify(o)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: tell, UpdateFunc: func(_, now any) { tell(now) }, DeleteFunc: tell,
	}
}

// Ready reports whether the Engine has seen the cluster and accepts commands.
func (e *Engine) Ready() bool { return e.ready.Load() }

func notReady() error {
	return problem.Errorf(problem.Unavailable, "try again in a second", "the agent is still reading the cluster").
		WithRetryAfter(time.Second)
}
