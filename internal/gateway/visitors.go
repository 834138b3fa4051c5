package gateway

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/gateway/signin"
	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
	"github.com/pipeops/pipeops-vm-agent/internal/htpasswd"
	"github.com/pipeops/pipeops-vm-agent/internal/limit"
)

// Visitors are what a route demands of its visitors; the zero value lets everyone in.
type Visitors struct {
	AllowFrom    []netip.Prefix // none is everywhere
	Users        *htpasswd.File // nil if no one has to sign in
	PerSecond    int            // requests of one address; zero is without limit
	MaxBodyBytes int64          // zero is without limit
	// SignIn has visitors sign in at an identity provider, or send a service token; nil for
	// neither.
	SignIn *signin.Demand
}

const (
	// burst is how many seconds' worth of requests an address may send at once, as in
	// ingress-nginx.
	burst = 5
	// wrongPasswords is how many an address may send at once, and wrongEvery when it may send one
	// more.
	wrongPasswords = 10
	wrongEvery     = 6 * time.Second
	// checksTogether bounds how many passwords are checked at a time, and checksEach of one host:
	// a check takes the processor for up to a quarter of a second. checksWaiting bounds how many of
	// one host wait for that, so that others wait no longer for it.
	checksTogether, checksEach, checksWaiting = 2, 1, 8
)

// guard keeps the visitors of a route to what it demands.
type guard struct {
	Visitors
	requests *limit.Failures[netip.Prefix] // each request counts; nil if they are not limited
	wrong    *limit.Failures[netip.Prefix] // wrong passwords and service tokens, and sign-ins that failed
	signedIn *signedIn
	same     limit.Locks // one check at a time of the same user and password
	gate     *signin.Gate
	told     atomic.Int64 // when a failure of the provider was last logged, in Unix time
}

func newGuard(v Visitors) *guard {
	if len(v.AllowFrom) == 0 && v.Users == nil && v.PerSecond == 0 && v.MaxBodyBytes == 0 && v.SignIn == nil {
		return nil
	}
	g := &guard{
		Visitors: v, wrong: limit.NewFailures[netip.Prefix](wrongPasswords, wrongEvery), signedIn: newSignedIn(),
		gate: signin.NewGate(v.SignIn),
	}
	if v.PerSecond > 0 {
		g.requests = limit.NewFailures[netip.Prefix](burst*v.PerSecond, time.Second/time.Duration(v.PerSecond))
	}
	return g
}

// sameAs reports whether a guard is for the same visitors, so that what it has counted holds.
func (g *guard) sameAs(v Visitors) bool {
	return g != nil && slices.Equal(g.AllowFrom, v.AllowFrom) && g.Users == v.Users && g.PerSecond == v.PerSecond && g.MaxBodyBytes == v.MaxBodyBytes &&
		g.SignIn.Equal(v.SignIn)
}

// admit returns the status and the word for a request that is refused, or zero. It puts the name of
// the user into the request's header, for the backend.
func (h *Handler) admit(g *guard, r *http.Request, host string) (status int, word string) {
	if g == nil {
		return 0, ""
	}
	peer, status, word := g.within(r)
	switch {
	case status != 0:
		return status, word
	case g.gate != nil:
		return h.signIns.admit(g, r, peer)
	case g.Users == nil:
		return 0, ""
	}
	user, password, given := r.BasicAuth()
	if !given {
		return http.StatusUnauthorized, gatewaywire.Unauthorized
	}
	if !g.signedIn.has(user, password, time.Now()) {
		if status, word := h.signIn(r, g, peer, host); status != 0 {
			return status, word
		}
	}
	r.Header.Del("Authorization")
	r.Header.Set(gatewaywire.HeaderUser, user)
	return 0, ""
}

// within returns the status and the word for a request that is from elsewhere, one too many or too
// large; or zero, and the visitor's network.
func (g *guard) within(r *http.Request) (peer netip.Prefix, status int, word string) {
	now, address := time.Now(), clientOf(r)
	peer = limit.PeerOfText(netip.AddrPortFrom(address, 0).String())
	switch {
	case len(g.AllowFrom) > 0 && !slices.ContainsFunc(g.AllowFrom, func(n netip.Prefix) bool { return n.Contains(address) }):
		return peer, http.StatusForbidden, gatewaywire.Denied
	case g.requests != nil && g.requests.Wait(peer, now) > 0:
		return peer, http.StatusTooManyRequests, gatewaywire.TooMany
	case g.MaxBodyBytes > 0 && r.ContentLength > g.MaxBodyBytes:
		return peer, http.StatusRequestEntityTooLarge, gatewaywire.TooLarge
	}
	if g.requests != nil {
		g.requests.Failed(peer, now)
	}
	return peer, 0, ""
}

// signIn checks the password of a request once the processor has time for it. A browser that sends
// the same one with many requests at a time has it checked once.
func (h *Handler) signIn(r *http.Request, g *guard, peer netip.Prefix, host string) (status int, word string) {
	user, password, _ := r.BasicAuth()
	if g.wrong.Wait(peer, time.Now()) > 0 {
		return http.StatusTooManyRequests, gatewaywire.TooMany
	}
	sum := g.signedIn.digest(user, password)
	if g.same.Lock(r.Context(), string(sum[:])) != nil {
		return http.StatusUnauthorized, gatewaywire.Unauthorized
	}
	defer g.same.Unlock(string(sum[:]))
	if g.signedIn.has(user, password, time.Now()) {
		return 0, ""
	}
	leaveLine, ok := h.waiting.Enter(host)
	if !ok {
		return http.StatusServiceUnavailable, gatewaywire.Busy
	}
	defer leaveLine()
	leave, ok := h.checks.Wait(r.Context(), host)
	if !ok {
		return http.StatusUnauthorized, gatewaywire.Unauthorized
	}
	defer leave()
	switch now := time.Now(); {
	case g.wrong.Wait(peer, now) > 0: // others were wrong while this one waited
		return http.StatusTooManyRequests, gatewaywire.TooMany
	case !g.Users.Match(user, password):
		g.wrong.Failed(peer, now)
		return http.StatusUnauthorized, gatewaywire.Unauthorized
	}
	g.signedIn.add(user, password, time.Now())
	return 0, ""
}

// clientOf returns the visitor's address, which the control plane's gateway has set.
func clientOf(r *http.Request) netip.Addr {
	address, err := netip.ParseAddr(strings.TrimSpace(r.Header.Get("X-Real-Ip")))
	if err != nil {
		return netip.Addr{}
	}
	return address.Unmap().WithZone("")
}
