package memory

import "context"

// Hold is memory that is reserved for a piece of work. The methods of a nil Hold do nothing.
type Hold struct {
	gate  *Gate
	work  string
	small bool
	bytes int64  // guarded by gate.mu
	leave func() // for others of the same owner; nil for small work
}

// Grow reserves more for large work, for a part of it whose size was unknown before, and returns to
// what to shrink afterwards. It does not wait: two that wait for each other's memory would wait
// forever.
func (h *Hold) Grow(bytes int64) (before int64, err error) {
	g := h.gate
	if h.small && !g.smalls.TryAcquire(bytes) || !h.small && !g.take(bytes) {
		return 0, g.refuse(context.Background(), h.work, bytes)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	before = h.bytes
	h.bytes += bytes
	return before, nil
}

// Shrink releases all but so many bytes.
func (h *Hold) Shrink(to int64) {
	if h == nil {
		return
	}
	g := h.gate
	g.mu.Lock()
	less := max(h.bytes-to, 0)
	h.bytes -= less
	g.mu.Unlock()
	if h.small {
		g.smalls.Release(less)
		return
	}
	if less >= givenBack {
		g.giveBack()
	}
	g.mu.Lock()
	g.reserved -= less
	g.mu.Unlock()
	if to == 0 {
		h.leave()
	}
	select {
	case g.changed <- struct{}{}:
	default: // the next in line looks already
	}
}

// Release ends the work. It may be called again.
func (h *Hold) Release() { h.Shrink(0) }

// Holds reports whether anything is reserved.
func (h *Hold) Holds() bool {
	if h == nil {
		return false
	}
	h.gate.mu.Lock()
	defer h.gate.mu.Unlock()
	return h.bytes > 0
}
