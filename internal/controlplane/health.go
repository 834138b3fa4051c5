package controlplane

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// readiness is the answer of /readyz. Ready reports whether agents and Runners are served. A broker
// that is down does not change that, but sets Degraded.
type readiness struct {
	Ready    bool              `json:"ready"`
	Degraded bool              `json:"degraded"`
	Checks   map[string]string `json:"checks"`

	ok map[string]bool
}

const (
	checkTimeout = 3 * time.Second
	// outboxPatience is how long an announcement may wait before it counts as stuck: longer than a
	// broker takes to elect a new leader.
	outboxPatience = 2 * time.Minute
)

// set records a check. Only a vital check affects readiness.
func (r *readiness) set(name string, vital, ok bool, text string) {
	r.ok[name] = ok
	if ok {
		r.Checks[name] = "ok: " + text
		return
	}
	r.Checks[name] = "failed: " + text
	if vital {
		r.Ready = false
	} else {
		r.Degraded = true
	}
}

func (c *ControlPlane) readiness(ctx context.Context) readiness {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	r := readiness{Ready: true, Checks: map[string]string{}, ok: map[string]bool{}}
	c.checkDatabase(ctx, &r)
	c.checkCertificates(&r)
	c.checkListeners(&r)
	if c.replicas != nil {
		r.set("controlPlanes", false, true, c.replicas.standing(c.leader.leads()))
	}
	return r
}

// checkDatabase reads from the database and checks whether the last heartbeats could be written: a
// full disk can still be read.
func (c *ControlPlane) checkDatabase(ctx context.Context, r *readiness) {
	outbox, err := c.outbox.stats(ctx)
	switch {
	case err != nil:
		c.cfg.Log.Error().Err(err).Msg("readiness: database")
		r.set("database", true, false, "does not answer; look at the log")
	case c.liveness.unwritten.Load():
		r.set("database", true, false, "is read, but heartbeats could not be written; look at the log")
	default:
		r.set("database", true, true, "answers")
	}
	c.checkBroker(r, outbox)
}

// checkBroker checks what may wait: announcements are stored meanwhile.
func (c *ControlPlane) checkBroker(r *readiness, stats OutboxStats) {
	connected, text := c.broker.check()
	outbox := stats.describe(c.cfg.Now())
	r.Checks["outbox"], r.Checks["dead-letters"] = outbox, c.broker.describeDead()
	if c.broker == nil { // without a broker, no announcement waits
		r.Checks["broker"] = text
		return
	}
	if r.ok["broker"] = connected; connected {
		r.Checks["broker"] = "ok: " + text
	} else {
		r.Checks["broker"], r.Degraded = text, true
	}
	if age(c.cfg.Now(), stats.Oldest) > outboxPatience {
		r.set("outbox", false, false, outbox)
		return
	}
	r.ok["outbox"] = true
}

func (c *ControlPlane) checkCertificates(r *readiness) {
	now, end := c.cfg.Now(), c.ca.IntermediatesEnd()
	r.set("ca", true, now.Before(end), "valid until "+end.UTC().Format(time.RFC3339))
	own, err := c.certificate.Get(nil)
	if err != nil || own.Leaf == nil {
		r.set("certificate", true, false, "the control plane's own cannot be made; look at the log")
		return
	}
	r.set("certificate", true, now.Before(own.Leaf.NotAfter), "the control plane's own is valid until "+own.Leaf.NotAfter.UTC().Format(time.RFC3339))
}

func (c *ControlPlane) checkListeners(r *readiness) {
	serving, counts := c.serving.Load(), c.Connections()
	for name, text := range map[string]string{
		listenerAPI: "listening", listenerEdge: "listening",
		listenerTunnel: fmt.Sprintf("%d agents connected", c.tunnel.Stats().Agents),
	} {
		switch {
		case !serving:
			r.set(name, true, false, "not serving")
		case counts[name].Failing:
			r.set(name, true, false, "accepts no connections; look at the log")
		default:
			r.set(name, true, true, text)
		}
	}
}

func (c *ControlPlane) serveReady(w http.ResponseWriter, r *http.Request) {
	answer := c.readiness(r.Context())
	status := http.StatusOK
	if !answer.Ready {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, answer)
}

// serveHealth only shows that the process responds.
func serveHealth(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the peer is gone if this fails
}
