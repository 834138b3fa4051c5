package controlapi

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/span"
)

// peer is the agent that the client certificate proves, or the reason why it proves none.
type peer struct {
	agentID string
	err     error
	// recoverable reports whether a proof with an old key may replace the certificate: there is
	// none, or it has expired. Any other refusal, such as of a copy or a revoked agent, is final.
	recoverable bool
}

type peerKey struct{}

func peerOf(ctx context.Context) peer {
	p, _ := ctx.Value(peerKey{}).(peer)
	return p
}

// withPeer refuses unauthenticated callers before it reads their body. Only renewal accepts them:
// an agent that was away for longer than its certificate's life proves its old key in the body.
func (h *handler) withPeer(ctx huma.Context, next func(huma.Context)) {
	r, w := humachi.Unwrap(ctx)
	var p peer
	if p.agentID, p.err = h.identify(r); p.err != nil {
		p.agentID, p.recoverable = "", r.TLS == nil || len(r.TLS.PeerCertificates) == 0 || problem.Is(p.err, CodeCertificateExpired)
	}
	if p.err != nil && ctx.Operation().Path != pathRenew {
		problem.Write(w, problem.RequestID(r.Context()), h.problem(r.Context(), p.err))
		return
	}
	noteAgent(r.Context(), p.agentID)
	next(huma.WithValue(ctx, peerKey{}, p))
}

// noted passes the agent's ID from inside a request to the line that is logged about the request.
type noted struct{ agentID string }

type notedKey struct{}

func noteAgent(ctx context.Context, agentID string) {
	if n, ok := ctx.Value(notedKey{}).(*noted); ok {
		n.agentID = agentID
	}
}

// LogRequests logs one line per request, never a body or a header.
func LogRequests(log zerolog.Logger) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			start, n := time.Now(), &noted{}
			ww := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
			next.ServeHTTP(ww, r.WithContext(context.WithValue(r.Context(), notedKey{}, n)))
			line := log.WithLevel(requestLevel(r, ww.Status())).Str("requestId", problem.RequestID(r.Context())).
				Str("method", r.Method).Str("path", r.URL.Path).Str("peer", r.RemoteAddr).
				Int("status", ww.Status()).Int("bytes", ww.BytesWritten()).Dur("took", time.Since(start))
			if n.agentID != "" {
				line.Str("agent", n.agentID)
			}
			if id := span.TraceID(r.Context()); id != "" {
				line.Str("traceId", id)
			}
			line.Msg("request")
		})
	}
}

// requestLevel keeps regular successful requests out of the log.
func requestLevel(r *http.Request, status int) zerolog.Level {
	switch {
	case status >= http.StatusInternalServerError:
		return zerolog.ErrorLevel
	case status >= http.StatusBadRequest:
		return zerolog.WarnLevel
	case r.Method == http.MethodGet || r.URL.Path == pathHeartbeat || r.URL.Path == pathEvents:
		return zerolog.DebugLevel
	}
	return zerolog.InfoLevel
}

func recoverPanic(log zerolog.Logger) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer func() { //nolint:contextcheck // it has the request
				p := recover()
				if p == nil {
					return
				}
				if p == http.ErrAbortHandler { //nolint:errorlint // the value itself is the contract
					panic(p)
				}
				id := problem.RequestID(r.Context())
				log.Error().Str("requestId", id).Interface("panic", p).Stack().Msg("handler panicked")
				problem.Write(w, id, problem.Errorf(problem.Internal, "look for the request ID in the control plane's log", "an unexpected error occurred"))
			}()
			next.ServeHTTP(w, r)
		})
	}
}

func withTimeout(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}
