package server

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// readyTimeout bounds the question whether the agent is ready: Kubernetes'
// probes give up after a second by default.
const readyTimeout = 900 * time.Millisecond

// NewHealth returns a handler with only /healthz and /readyz, for a port that the kubelet can reach
// and that must offer nothing else. If degraded is not nil, its text is added to the answer of a
// ready server.
func NewHealth(version string, ready func(context.Context) error, degraded func() string) http.Handler {
	r := chi.NewRouter()
	r.Use(problem.WithRequestID)
	mountHealth(r, version, ready, degraded)
	return r
}

func mountHealth(r chi.Router, version string, ready func(context.Context) error, degraded func() string) {
	r.Get("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		writeStatus(w, "ok", version, nil)
	})
	r.Get("/readyz", func(w http.ResponseWriter, r *http.Request) {
		if ready == nil {
			writeStatus(w, "ready", version, degraded)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
		defer cancel()
		if err := ready(ctx); err != nil {
			problem.Write(w, problem.RequestID(ctx), problem.Errorf(problem.Unavailable,
				"see the agent's log", "not ready: %v", err))
			return
		}
		writeStatus(w, "ready", version, degraded)
	})
}

func writeStatus(w http.ResponseWriter, status, version string, degraded func() string) {
	answer := map[string]string{"status": status, "version": version}
	if degraded != nil {
		if worse := degraded(); worse != "" {
			answer["degraded"] = worse
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // the caller is gone if this fails
}
