package app

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/ptr"
	crevent "sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const (
	// maxAwaited bounds the watches at a time. What is over it is asked for again,
	// ever later.
	maxAwaited = 100
	awaitFor   = time.Minute
)

// tidings has an App looked at again as soon as the cluster says something of
// one of its objects that it says in events alone. There is a watch only while
// the diagnosis hangs on one, of one object's events, and for a minute: one of
// all events would bring every event of the cluster, and need the right to it.
type tidings struct {
	events  corev1client.EventsGetter
	resync  chan<- crevent.TypedGenericEvent[*App]
	mu      sync.Mutex
	running map[string]bool
	watches sync.WaitGroup
	until   context.Context //nolint:containedctx // of the Engine's run: nil before and after
}

func newTidings(events corev1client.EventsGetter, resync chan<- crevent.TypedGenericEvent[*App]) *tidings {
	return &tidings{events: events, resync: resync, running: map[string]bool{}}
}

// Start makes tidings a manager.Runnable. It returns when ctx has ended and so
// have all watches.
func (w *tidings) Start(ctx context.Context) error {
	w.mu.Lock()
	w.until = ctx
	w.mu.Unlock()
	<-ctx.Done()
	w.mu.Lock()
	w.until = nil // no watch begins any more
	w.mu.Unlock()
	w.watches.Wait()
	return nil
}

// await has the App looked at when there is an event of one of these reasons
// that is newer than version, about what is selected.
func (w *tidings) await(app runnerapi.Key, of fields.Set, version string, reasons []string) {
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
		if !came {
			return
		}
		select {
		case w.resync <- crevent.TypedGenericEvent[*App]{Object: &App{ObjectMeta: metav1.ObjectMeta{Namespace: app.Namespace, Name: app.Name}}}:
		case <-ctx.Done():
		}
	})
}

// comes waits for such an event. Where it cannot, nothing is lost but time.
func (w *tidings) comes(ctx context.Context, namespace string, of fields.Set, version string, reasons []string) bool {
	ctx, cancel := context.WithTimeout(ctx, awaitFor)
	defer cancel()
	stream, err := w.events.Events(namespace).Watch(ctx, metav1.ListOptions{
		FieldSelector: of.AsSelector().String(), ResourceVersion: version, TimeoutSeconds: ptr.To(int64(awaitFor / time.Second)),
	})
	if err != nil {
		return false
	}
	defer stream.Stop()
	for ev := range stream.ResultChan() {
		if o, ok := ev.Object.(*corev1.Event); ok && slices.Contains(reasons, o.Reason) {
			return true
		}
	}
	return false
}
