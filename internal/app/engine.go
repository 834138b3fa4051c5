package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
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

	"github.com/pipeops/pipeops-vm-agent/internal/app/appcache"
	"github.com/pipeops/pipeops-vm-agent/internal/app/apply"
	"github.com/pipeops/pipeops-vm-agent/internal/app/controller"
	"github.com/pipeops/pipeops-vm-agent/internal/app/diagnose"
	"github.com/pipeops/pipeops-vm-agent/internal/app/events"
	"github.com/pipeops/pipeops-vm-agent/internal/app/evidence"
	"github.com/pipeops/pipeops-vm-agent/internal/app/exec"
	"github.com/pipeops/pipeops-vm-agent/internal/app/ingress"
	"github.com/pipeops/pipeops-vm-agent/internal/app/leader"
	"github.com/pipeops/pipeops-vm-agent/internal/app/logs"
	"github.com/pipeops/pipeops-vm-agent/internal/app/revision"
	"github.com/pipeops/pipeops-vm-agent/internal/app/rollout"
	"github.com/pipeops/pipeops-vm-agent/internal/app/sizing"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/kubeclient"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/podport"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
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
	// Announce sends events to the control plane. It is called with the same events again until it
	// returns nil, and without events at the beginning of a leadership. If it is nil, nothing is
	// announced.
	Announce func(ctx context.Context, call events.Call) error
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
	Contents controller.Contents
	// Stabilization is how long pods have to stay ready before their App is healthy; the
	// default when nil.
	Stabilization *diagnose.Stabilization
	// DirectAddresses are networks whose load balancers count as public.
	DirectAddresses []netip.Prefix
	// SignIn is how visitors of Apps sign in.
	SignIn ingress.SignIn
	// Sizing is how right-sizing measures; the zero value for the defaults.
	Sizing sizing.Timing
}

// StabilizationFor returns the default with another time for pods without probes.
func StabilizationFor(unprobed time.Duration) diagnose.Stabilization {
	return diagnose.WithUnprobed(unprobed)
}

// Engine reconciles Apps and implements backend.Apps. It joins the parts that do so.
type Engine struct {
	*rollout.Writer
	*logs.Reader
	*exec.Executor
	*ingress.Router
	cfg        Config
	log        zerolog.Logger
	now        func() time.Time
	mgr        manager.Manager
	store      *appcache.Store
	election   *leader.Election
	sender     *events.Sender
	sizer      *sizing.Sizer
	collector  *evidence.Collector
	controller *controller.Controller
}

var (
	_ backend.Apps     = (*Engine)(nil)
	_ backend.Outcomes = (*Engine)(nil)
)

// New prepares an Engine; nothing happens in the cluster before Run.
func New(cfg Config) (*Engine, error) {
	adoptLoggers(cfg.Log)
	scheme, err := appcache.NewScheme()
	if err != nil {
		return nil, err
	}
	e := &Engine{cfg: cfg, log: cfg.Log, now: time.Now}
	rc := kubeclient.Config(cfg.RESTConfig)
	mapper := appcache.NewMapper()
	logger := zerologr.New(new(cfg.Log.Level(zerolog.WarnLevel)))
	e.mgr, err = manager.New(rc, manager.Options{
		Scheme: scheme, Logger: logger,
		MapperProvider:          func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mapper, nil },
		Cache:                   appcache.CacheOptions(cfg.Namespaces),
		Client:                  appcache.ClientOptions(),
		Metrics:                 metricsserver.Options{BindAddress: "0"},
		GracefulShutdownTimeout: new(stopTimeout),
		Controller:              config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		return nil, fmt.Errorf("prepare the App engine: %w", err)
	}
	live, err := client.New(rc, client.Options{Scheme: scheme, Mapper: mapper, HTTPClient: e.mgr.GetHTTPClient()})
	if err != nil {
		return nil, fmt.Errorf("prepare the App engine's client: %w", err)
	}
	core, err := corev1client.NewForConfigAndClient(rc, e.mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("prepare the App engine's client for logs and events: %w", err)
	}
	scope := objectmeta.Scope{Agent: cfg.Namespace, Only: cfg.Namespaces}
	e.store = appcache.New(e.mgr.GetClient(), live, scope, cfg.Log, e.clock)
	e.election, err = leader.New(e.store, leader.Config{Namespace: cfg.Namespace, Replica: cfg.Replica, Lease: cfg.Lease, Log: cfg.Log}, rc)
	if err != nil {
		return nil, err
	}
	e.makeParts(rc, core, appcache.Sources{
		Config: rc, HTTP: e.mgr.GetHTTPClient(), Mapper: mapper, Live: live, Namespaces: cfg.Namespaces,
	})
	return e, e.wire()
}

// clock returns the time. Tests change it.
func (e *Engine) clock() time.Time { return e.now() }

// makeParts makes what works on the Apps.
func (e *Engine) makeParts(rc *rest.Config, core *corev1client.CoreV1Client, optional appcache.Sources) {
	log := e.cfg.Log
	applier, history := apply.New(e.store, log, e.clock), revision.New(e.store)
	e.Writer = rollout.New(e.store, applier, history, log, e.clock)
	e.Reader = logs.New(e.store, core, log, e.clock)
	e.Executor = exec.New(e.store, rc, core.RESTClient())
	e.Router = ingress.New(e.store, core.RESTClient(), optional, e.election.Leads, e.routed, log, e.clock)
	e.DirectAddresses, e.SignIn = e.cfg.DirectAddresses, e.cfg.SignIn
	e.sender = events.New(e.store, e.election, e.cfg.Namespace, e.cfg.Announce, log)
	e.sizer = sizing.New(e.store, e.cfg.Sizing, e.election.Leads, log, e.clock)
	e.collector = evidence.New(e.store, core, podport.NewReach(podport.Forwarder{Config: rc, Core: core.RESTClient()}),
		ptr.Deref(e.cfg.Stabilization, diagnose.DefaultStabilization), e.election.Leads, e.clock)
	e.controller = controller.New(controller.Config{
		Store: e.store, Election: e.election, Applier: applier, History: history, Writer: e.Writer, Router: e.Router,
		Collector: e.collector, Sender: e.sender, Contents: e.cfg.Contents, Log: log, Now: e.clock,
	})
}

// wire adds the parts to the manager.
func (e *Engine) wire() error {
	if err := e.controller.SetupWithManager(e.mgr); err != nil {
		return fmt.Errorf("prepare the App controller: %w", err)
	}
	for _, part := range []manager.Runnable{always(e.becomeReady), e.election, always(e.takeOver), always(e.WatchGatewayAPI), e.sizer, e.collector, e.sender} {
		if err := e.mgr.Add(part); err != nil {
			return err
		}
	}
	return nil
}

// always is a part that runs in every replica of the agent, leading or not.
type always func(context.Context) error

func (f always) Start(ctx context.Context) error { return f(ctx) }

// NeedLeaderElection makes it a manager.LeaderElectionRunnable.
func (always) NeedLeaderElection() bool { return false }

// becomeReady runs once the caches are filled.
func (e *Engine) becomeReady(ctx context.Context) error {
	e.store.SetReady(true)
	e.routed()
	<-ctx.Done()
	e.store.SetReady(false)
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

// watch starts the caches and connects the hub and the sender of events to their changes.
func (e *Engine) watch(ctx context.Context) error {
	for _, o := range append(appcache.Wholes(), &appsv1.ReplicaSet{}, &batchv1.Job{}, appcache.NamespaceMeta()) {
		if _, err := e.mgr.GetCache().GetInformer(ctx, o, blockless); err != nil {
			return fmt.Errorf("watch %T: %w", o, err)
		}
	}
	for o, notify := range map[client.Object]func(client.Object){
		&v1alpha1.App{}: func(o client.Object) {
			e.store.Notify(runnerapi.Key{Namespace: o.GetNamespace(), Name: o.GetName()})
			e.sender.Look()
			e.routed()
		},
		&networkingv1.Ingress{}: func(client.Object) { e.routed() },
		&corev1.Service{}:       func(client.Object) { e.routed() },
		&corev1.Pod{}: func(o client.Object) {
			if e.LeadsToPods() {
				e.routed()
			}
			e.store.Notify(runnerapi.Key{Namespace: o.GetNamespace(), Name: o.GetLabels()[objectmeta.App]})
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
func (e *Engine) Ready() bool { return e.store.Ready() }

// ContentChanged restarts the Apps that use an object and asked for restarts, and has routes follow
// a Secret. It is called after each write through the agent.
func (e *Engine) ContentChanged(ctx context.Context, kind runnerapi.RestartTrigger, key runnerapi.Key) error {
	if kind == runnerapi.RestartOnSecrets {
		e.SecretChanged(ctx, key)
	}
	return e.controller.ContentChanged(ctx, kind, key)
}

// Metrics returns what an App uses now and what it requests.
func (e *Engine) Metrics(ctx context.Context, key runnerapi.Key) (runnerapi.AppMetrics, error) {
	return e.sizer.Metrics(ctx, key)
}

// routed signals that routes may have changed.
func (e *Engine) routed() {
	e.LookAtGateways()
	if e.cfg.Routed != nil {
		e.cfg.Routed()
	}
}
