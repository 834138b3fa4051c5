package gateway

import (
	"math/rand/v2"
)

// Backend is one of several Services behind a route.
type Backend struct {
	Addresses []string // host:port; none if no pod accepts connections
	HTTP2     bool
	// Weight is the Service's share of the requests, in proportion to the weights of all.
	Weight int
	// Missing is set if there is no such Service, or the route must not lead to it. Its share of
	// the requests fails.
	Missing bool
	// Filters change headers of its requests and responses, after those of the route; nil for none.
	Filters *Filters
}

// closed reports whether a route has nothing that answers its requests.
func (r *Route) closed() bool {
	return len(r.Addresses) == 0 && r.Backends == nil && (r.Filters == nil || r.Filters.Redirect == nil)
}

// choose returns the backend for a request. It returns false if there is none to choose.
func (r *Route) choose() (b Backend, ok bool) {
	if r.Backends == nil {
		return Backend{Addresses: r.Addresses, HTTP2: r.HTTP2}, true
	}
	total := 0
	for i := range r.Backends {
		total += r.Backends[i].Weight
	}
	if total <= 0 {
		return b, false
	}
	n := rand.IntN(total) //nolint:gosec // spreading load needs no secrecy
	for i := range r.Backends {
		if b = r.Backends[i]; n < b.Weight {
			break
		}
		n -= b.Weight
	}
	return b, !b.Missing
}
