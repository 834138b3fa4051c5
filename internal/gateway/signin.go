package gateway

import (
	"context"
	"net/http"
	"net/netip"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/gateway/signin"
	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

const (
	// maxSignIns is how many sign-ins wait for their identity provider at a time, and signInsEach
	// of one host. providerTimeout bounds how long each waits.
	maxSignIns, signInsEach = 256, 32
	providerTimeout         = 15 * time.Second
	// toldEvery is how often a route logs that its identity provider failed.
	toldEvery = time.Minute
)

// gates returns the guards of a host's routes that have visitors sign in.
func (t table) gates(host string) (guards []*guard) {
	for _, name := range []string{host, wildcardOf(host)} {
		for _, r := range t[name] {
			if r.guard != nil && r.guard.gate != nil {
				guards = append(guards, r.guard)
			}
		}
	}
	return guards
}

// signIns signs visitors of a Handler's routes in.
type signIns struct {
	h     *Handler
	calls *limit.Shares // of identity providers, in progress, by host
}

func newSignIns(h *Handler) *signIns { return &signIns{h, limit.NewShares(maxSignIns, signInsEach)} }

// admit is the Handler's admit for a route that has visitors sign in.
func (s *signIns) admit(g *guard, r *http.Request, peer netip.Prefix) (status int, word string) {
	now := time.Now()
	if r.Header.Get(signin.HeaderToken) != "" && g.wrong.Wait(peer, now) > 0 {
		return http.StatusTooManyRequests, gatewaywire.TooMany
	}
	verdict, err := g.gate.Admit(r, hostOf(r), now)
	switch {
	case err != nil:
		s.h.log.Error().Err(err).Str("host", r.Host).Msg("failed to sign a statement about a visitor")
		return http.StatusBadGateway, gatewaywire.Unreachable
	case verdict == signin.Admitted:
		return 0, ""
	case verdict == signin.WrongToken:
		g.wrong.Failed(peer, now)
	}
	if g.gate.Provider == nil {
		return http.StatusUnauthorized, gatewaywire.TokenWanted
	}
	return http.StatusUnauthorized, gatewaywire.SignIn
}

// begin sends a visitor to the identity provider.
func (s *signIns) begin(w http.ResponseWriter, r, in *http.Request, g *guard, host string) {
	s.atProvider(w, r, g, host, func(ctx context.Context) error { return g.gate.Begin(ctx, w, in, host, time.Now()) })
}

// atProvider calls an identity provider, and answers the request if that fails.
func (s *signIns) atProvider(w http.ResponseWriter, r *http.Request, g *guard, host string, call func(context.Context) error) (failed bool) {
	leave, ok := s.calls.Enter(host)
	if !ok {
		s.h.answer(w, r, http.StatusServiceUnavailable, gatewaywire.Busy, nil)
		return false
	}
	defer leave()
	ctx, cancel := context.WithTimeout(r.Context(), providerTimeout)
	defer cancel()
	err := call(ctx)
	if err == nil {
		return false
	}
	status, word := http.StatusUnauthorized, gatewaywire.SignInFailed
	switch {
	case problem.Is(err, problem.Forbidden):
		status, word = http.StatusForbidden, gatewaywire.NotAdmitted
	case problem.Is(err, problem.Unavailable):
		status, word = http.StatusServiceUnavailable, gatewaywire.ProviderAway
	}
	s.tell(g, host, word, err)
	s.h.answer(w, r, status, word, err)
	return word == gatewaywire.SignInFailed
}

// tell logs why a sign-in failed, though not each time: visitors cause it.
func (s *signIns) tell(g *guard, host, word string, err error) {
	now, told := time.Now().Unix(), g.told.Load()
	if word != gatewaywire.NotAdmitted && now-told >= int64(toldEvery.Seconds()) && g.told.CompareAndSwap(told, now) {
		s.h.log.Warn().Err(err).Str("host", host).Msg("a visitor's sign-in failed")
	}
}

// ownPage answers what is below the path that the agent has for itself at a host with sign-in.
func (s *signIns) ownPage(w http.ResponseWriter, r *http.Request, host string, guards []*guard) {
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch path := r.URL.Path; {
	case path == signin.CallbackPath && r.Method == http.MethodGet:
		s.end(w, r, host, guards)
	case path == signin.KeysPath && reads:
		s.keys(w, r, host, guards[0])
	case path == signin.SignOutPath && (reads || r.Method == http.MethodPost):
		gates := make([]*signin.Gate, 0, len(guards))
		for _, g := range guards {
			gates = append(gates, g.gate)
		}
		signin.SignOut(w, host, gates)
	default:
		s.h.answer(w, r, http.StatusNotFound, gatewaywire.NoRoute, nil)
	}
}

// end signs a visitor in who has returned from the identity provider.
func (s *signIns) end(w http.ResponseWriter, r *http.Request, host string, guards []*guard) {
	for _, g := range guards {
		back, ok := g.gate.Returned(r, host, time.Now())
		if !ok {
			continue
		}
		peer, status, word := g.within(r)
		if status == 0 && g.wrong.Wait(peer, time.Now()) > 0 {
			status, word = http.StatusTooManyRequests, gatewaywire.TooMany
		}
		if status != 0 {
			s.h.answer(w, r, status, word, nil)
			return
		}
		if s.atProvider(w, r, g, host, func(ctx context.Context) error { return back.Finish(ctx, w, time.Now()) }) {
			g.wrong.Failed(peer, time.Now())
		}
		return
	}
	s.h.answer(w, r, http.StatusUnauthorized, gatewaywire.SignInFailed, nil)
}

// keys answers with the keys that verify what Apps are told of visitors.
func (s *signIns) keys(w http.ResponseWriter, r *http.Request, host string, g *guard) {
	keys, err := g.gate.Keys(host)
	if err != nil {
		s.h.answer(w, r, http.StatusBadGateway, gatewaywire.Unreachable, err)
		return
	}
	w.Header().Set("Content-Type", "application/jwk-set+json")
	w.Header().Set("Cache-Control", "public, max-age=300")
	_, _ = w.Write(keys)
}
