package appcache

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crevent "sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Store reads Apps and their pods, and reports that they changed.
type Store struct {
	Cached client.Client    // reads from the cache, never older than its own writes
	Live   client.Client    // reads from the API server
	Scope  objectmeta.Scope // where Apps may be
	log    zerolog.Logger
	now    func() time.Time
	ready  atomic.Bool
	budget budget
	hub
	resync chan crevent.TypedGenericEvent[*v1alpha1.App]
}

// New returns a Store that is not ready yet.
func New(cached, live client.Client, scope objectmeta.Scope, log zerolog.Logger, now func() time.Time) *Store {
	return &Store{
		Cached: cached, Live: live, Scope: scope, log: log, now: now, budget: newBudget(),
		resync: make(chan crevent.TypedGenericEvent[*v1alpha1.App]),
	}
}

// Ready reports whether the caches are filled.
func (s *Store) Ready() bool { return s.ready.Load() }

// SetReady notes whether the caches are filled.
func (s *Store) SetReady(ready bool) { s.ready.Store(ready) }

// Resynced returns the Apps to reconcile although nothing of them changed in the cluster.
func (s *Store) Resynced() <-chan crevent.TypedGenericEvent[*v1alpha1.App] { return s.resync }

// Resync requests a reconciliation of an App. It returns false once ctx has ended.
func (s *Store) Resync(ctx context.Context, key runnerapi.Key) bool {
	a := &v1alpha1.App{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	select {
	case s.resync <- crevent.TypedGenericEvent[*v1alpha1.App]{Object: a}:
		return true
	case <-ctx.Done():
		return false
	}
}

// PatchStatus sets fields of the status of the App with this UID. It changes no other App of that
// name, and none that is gone. The test of the UID is part of the patch: a UID in a merge patch of
// a status is ignored.
func (s *Store) PatchStatus(ctx context.Context, key runnerapi.Key, uid types.UID, status map[string]any) error {
	ops := make([]map[string]any, 0, 1+len(status))
	ops = append(ops, map[string]any{"op": "test", "path": "/metadata/uid", "value": uid})
	for field, value := range status {
		ops = append(ops, map[string]any{"op": "add", "path": "/status/" + field, "value": value})
	}
	patch, err := json.Marshal(ops)
	if err != nil {
		return err
	}
	a := &v1alpha1.App{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	err = s.Cached.Status().Patch(ctx, a, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(objectmeta.FieldManager))
	if apierrors.IsInvalid(err) { // it has another UID, or no status yet
		return nil
	}
	return client.IgnoreNotFound(err)
}
