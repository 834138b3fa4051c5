package appcache

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/retry"
)

const (
	// lookForKind is how often the cluster is asked for a kind that it lacks, and lookAgain how
	// soon for one that was lost.
	lookForKind, lookAgain = 30 * time.Second, time.Second
	probeTimeout           = 10 * time.Second
)

// Optional caches the objects of a kind that a cluster may lack. It begins when the kind is
// installed, and ends when it is removed.
type Optional struct {
	kind   schema.GroupVersionKind
	marked labels.Selector // nil for all objects
	live   client.Reader
	// dial returns a cache that has not started.
	dial func(cache.Options) (cache.Cache, error)
	// changed is called when the objects may have changed.
	changed func()
	log     zerolog.Logger

	known   atomic.Bool
	objects atomic.Pointer[client.Reader] // nil while the cluster lacks the kind
	denied  bool
}

// Sources is what an Optional reads from.
type Sources struct {
	Config     *rest.Config
	HTTP       *http.Client
	Mapper     meta.RESTMapper
	Live       client.Reader
	Namespaces []string // the only ones to watch; empty for all
}

// NewOptional returns the cache of a kind. If marked is set, it has only objects with these labels.
func NewOptional(kind schema.GroupVersionKind, marked labels.Selector, from Sources, changed func(), log zerolog.Logger) *Optional {
	o := &Optional{kind: kind, marked: marked, live: from.Live, changed: changed, log: log.With().Str("kind", kind.Kind).Logger()}
	o.dial = func(opts cache.Options) (cache.Cache, error) {
		opts.HTTPClient, opts.Mapper = from.HTTP, from.Mapper
		opts.DefaultNamespaces = onlyIn(from.Namespaces)
		return cache.New(from.Config, opts)
	}
	return o
}

// Known reports whether it is known which objects there are.
func (o *Optional) Known() bool { return o.known.Load() }

// List returns all objects; none if the cluster lacks the kind. They must not be changed.
func (o *Optional) List(ctx context.Context) ([]unstructured.Unstructured, error) {
	reader := o.objects.Load()
	if reader == nil {
		return nil, nil
	}
	list := o.empty()
	if err := (*reader).List(ctx, list, Untouched); err != nil {
		return nil, err
	}
	return list.Items, nil
}

func (o *Optional) empty() *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(o.kind.GroupVersion().WithKind(o.kind.Kind + "List"))
	return list
}

// Run keeps the cache until the context ends.
func (o *Optional) Run(ctx context.Context) error {
	for {
		pause := lookForKind
		err := o.probe(ctx)
		switch {
		case ctx.Err() != nil: // the wait below ends, too
		case err == nil:
			if err := o.follow(ctx); err != nil && ctx.Err() == nil {
				o.log.Warn().Err(err).Msg("failed to watch objects of an optional kind; retrying")
			}
			pause = lookAgain
		case isAbsent(err):
			o.lacks(err)
		default:
			o.log.Debug().Err(err).Msg("failed to find out whether the cluster has an optional kind; retrying")
			pause = lookAgain
		}
		if !retry.Wait(ctx, retry.Jitter(pause)) {
			return nil
		}
	}
}

// isAbsent reports whether the cluster lacks the kind, or keeps it from the agent.
func isAbsent(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) }

// probe asks for one object. That says more than discovery: also whether the agent may list them.
func (o *Optional) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	opts := []client.ListOption{client.Limit(1)}
	if o.marked != nil {
		opts = append(opts, client.MatchingLabelsSelector{Selector: o.marked})
	}
	return o.live.List(ctx, o.empty(), opts...)
}

// lacks notes that there are no objects.
func (o *Optional) lacks(why error) {
	if denied := apierrors.IsForbidden(why); denied != o.denied {
		if o.denied = denied; denied {
			o.log.Warn().Err(why).Msg("the agent lacks the right to list an optional kind: apply its newest manifest")
		}
	}
	had := o.objects.Swap(nil)
	if !o.known.Swap(true) || had != nil {
		o.changed()
	}
}

// follow watches the objects until the kind is gone or the context ends.
func (o *Optional) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	objects, err := o.dial(cache.Options{
		DefaultLabelSelector: o.marked, DefaultTransform: strip, ReaderFailOnMissingInformer: true,
		DefaultWatchErrorHandler: func(ctx context.Context, r *toolscache.Reflector, err error) {
			if isAbsent(err) {
				cancel()
				return
			}
			toolscache.DefaultWatchErrorHandler(ctx, r, err)
		},
	})
	if err != nil {
		return err
	}
	one := &unstructured.Unstructured{}
	one.SetGroupVersionKind(o.kind)
	informer, err := objects.GetInformer(ctx, one, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { o.changed() }, UpdateFunc: func(any, any) { o.changed() }, DeleteFunc: func(any) { o.changed() },
	}); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- objects.Start(ctx) }()
	if objects.WaitForCacheSync(ctx) {
		var reader client.Reader = objects
		o.objects.Store(&reader)
		o.denied = false
		o.known.Store(true)
		o.changed()
	}
	return <-ended
}
