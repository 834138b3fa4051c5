package appcache

import (
	"sync"

	"github.com/pipeops/pipeops-vm-agent/internal/wake"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// hub wakes the subscribers of an App's changes. A slow subscriber misses nothing: it is woken once
// if there is something to look at.
type hub struct {
	mu   sync.Mutex
	subs map[runnerapi.Key]map[wake.Signal]struct{}
}

// Subscribe returns a channel that signals each change of the App or its pods, until it is
// cancelled.
func (h *hub) Subscribe(key runnerapi.Key) (news <-chan struct{}, cancel func()) {
	ch := wake.New()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.subs == nil {
		h.subs = map[runnerapi.Key]map[wake.Signal]struct{}{}
	}
	if h.subs[key] == nil {
		h.subs[key] = map[wake.Signal]struct{}{}
	}
	h.subs[key][ch] = struct{}{}
	return ch, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.subs[key], ch)
		if len(h.subs[key]) == 0 {
			delete(h.subs, key)
		}
	}
}

// Notify signals that an App or one of its pods changed.
func (h *hub) Notify(key runnerapi.Key) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for ch := range h.subs[key] {
		ch.Raise()
	}
}
