package controlplane

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// readiness is the answer of /readyz. Ready says whether agents and Runners are
// served; a broker that is down does not change that.
type readiness struct {
	Ready  bool              `json:"ready"`
	Checks map[string]string `json:"checks"`
}

const checkTimeout = 3 * time.Second

func (c *ControlPlane) readiness(ctx context.Context) readiness {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	r := readiness{Ready: true, Checks: map[string]string{}}
	set := func(name string, vital, ok bool, text string) {
		if ok {
			text = "ok: " + text
		} else {
			text = "failed: " + text
			r.Ready = r.Ready && !vital
		}
		r.Checks[name] = text
	}
	outbox, err := c.outbox.stats(ctx)
	set("database", true, err == nil, "answers")
	if err != nil {
		c.cfg.Log.Error().Err(err).Msg("readiness: database")
		r.Checks["database"] = "failed: does not answer; look at the log"
	}
	end := c.ca.Certificate().NotAfter
	set("ca", true, c.cfg.Now().Before(end), "valid until "+end.UTC().Format(time.RFC3339))
	serving := c.serving.Load()
	set("tunnel", true, serving, fmt.Sprintf("%d agents connected", c.tunnel.Stats().Agents))
	set("edge", true, serving, "listening")
	connected, text := c.broker.check()
	set("broker", false, connected, text)
	if !connected {
		r.Checks["broker"] = text
	}
	if c.replicas != nil {
		set("controlPlanes", false, true, c.replicas.standing(c.leader.leads()))
	}
	r.Checks["dead-letters"] = c.broker.describeDead()
	r.Checks["outbox"] = outbox.describe(c.cfg.Now())
	return r
}

func (c *ControlPlane) serveReady(w http.ResponseWriter, r *http.Request) {
	answer := c.readiness(r.Context())
	status := http.StatusOK
	if !answer.Ready {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, answer)
}

// serveHealth says that the process answers, and nothing else.
func serveHealth(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the peer is gone if this fails
}
