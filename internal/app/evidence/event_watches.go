package evidence

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/app/appcache"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const (
	// maxAwaited bounds the watches at a time. Apps beyond that are checked again at growing
	// intervals.
	maxAwaited = 100
	awaitFor   = time.Minute
)

// eventWatches reconciles an App as soon as the cluster reports something about one of its objects
// that it reports only in events. A watch exists only while a diagnosis depends on it, for
// one object's events, and for a minute. A watch of all events would receive every event of the
// cluster, and need the right to do so.
type eventWatches struct {
	events  corev1client.EventsGetter
	store   *appcache.Store
	mu      sync.Mutex
	running map[string]bool
	watches sync.WaitGroup
	until   context.Context //nolint:containedctx // of Start: nil before and after
}

func newEventWatches(events corev1client.EventsGetter, store *appcache.Store) *eventWatches {
	return &eventWatches{events: events, store: store, running: map[string]bool{}}
}

// run returns after ctx and all watches have ended.
func (w *eventWatches) run(ctx context.Context) {
	w.mu.Lock()
	w.until = ctx
	w.mu.Unlock()
	<-ctx.Done()
	w.mu.Lock()
	w.until = nil // no new watch begins
	w.mu.Unlock()
	w.watches.Wait()
}

// await reconciles the App when there is an event about the selected object, with one of these
// reasons (of any reason if there are none) and newer than version.
func (w *eventWatches) await(app runnerapi.Key, of fields.Set, version string, reasons []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := app.Namespace + " " + of.String()
	if w.until == nil || w.running[id] || len(w.running) >= maxAwaited {
		return
	}
	w.running[id] = true
	ctx := w.until
	w.watches.Go(func() {
		came := w.comes(ctx, app.Namespace, of, version, reasons)
		w.mu.Lock()
		delete(w.running, id)
		w.mu.Unlock()
		if came {
			w.store.Resync(ctx, app)
		}
	})
}

// comes waits for such an event. If it fails, the App is only reconciled later.
func (w *eventWatches) comes(ctx context.Context, namespace string, of fields.Set, version string, reasons []string) bool {
	ctx, cancel := context.WithTimeout(ctx, awaitFor)
	defer cancel()
	stream, err := w.events.Events(namespace).Watch(ctx, metav1.ListOptions{
		FieldSelector: of.AsSelector().String(), ResourceVersion: version, TimeoutSeconds: new(int64(awaitFor / time.Second)),
	})
	if err != nil {
		return false
	}
	defer stream.Stop()
	for ev := range stream.ResultChan() {
		if o, ok := ev.Object.(*corev1.Event); ok && (len(reasons) == 0 || slices.Contains(reasons, o.Reason)) {
			return true
		}
	}
	return false
}
