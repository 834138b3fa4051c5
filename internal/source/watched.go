package source

import (
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// watched is the sources as the watches have them; nothing while this replica does not lead.
type watched struct {
	mu     sync.Mutex
	stores []cache.Store
}

// set replaces what is watched.
func (w *watched) set(stores []cache.Store) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stores = stores
}

// lacks reports whether a source is not there; false while nothing is watched.
func (w *watched) lacks(key runnerapi.Key) bool {
	w.mu.Lock()
	watching := len(w.stores) > 0
	w.mu.Unlock()
	return watching && w.get(key) == nil
}

// get returns a source; nil if there is none.
func (w *watched) get(key runnerapi.Key) *unstructured.Unstructured {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, store := range w.stores {
		if in, there, _ := store.GetByKey(key.String()); there {
			if u, ok := in.(*unstructured.Unstructured); ok {
				return u
			}
		}
	}
	return nil
}

// all returns all sources.
func (w *watched) all() (all []*unstructured.Unstructured) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, store := range w.stores {
		for _, in := range store.List() {
			if u, ok := in.(*unstructured.Unstructured); ok {
				all = append(all, u)
			}
		}
	}
	return all
}
