package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/liveness"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/outbox"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/peers"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/tunnel/server"
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

// health checks what a control plane needs to serve.
type health struct {
	outbox      *outbox.Outbox
	liveness    *liveness.Liveness
	broker      *outbox.Broker // nil if there is none
	ca          ca.Trust
	certificate *ca.ServerCertificate
	tunnel      *server.Server
	peers       *peers.Peers // nil if there is only one control plane
	leader      *peers.Leader
	public      *public // nil if there is no gateway
	serving     *atomic.Bool
	connections func() map[string]limit.Stats
	log         zerolog.Logger
	now         func() time.Time
}

func (h *health) readiness(ctx context.Context) readiness {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	r := readiness{Ready: true, Checks: map[string]string{}, ok: map[string]bool{}}
	h.checkDatabase(ctx, &r)
	h.checkCertificates(&r)
	h.checkListeners(&r)
	h.checkGateway(&r)
	if h.peers != nil {
		r.set("controlPlanes", false, true, h.peers.Standing(h.leader.Leads()))
	}
	return r
}

// status implements sdnotify.Look.
func (h *health) status(ctx context.Context) (ready bool, text string) {
	r := h.readiness(ctx)
	state := "ready"
	if !r.Ready {
		state = "not ready"
	}
	said := []string{state}
	for _, name := range slices.Sorted(maps.Keys(r.ok)) {
		if !r.ok[name] {
			said = append(said, name+": "+r.Checks[name])
		}
	}
	return r.Ready, strings.Join(said, "; ")
}

// checkDatabase reads from the database and checks whether the last heartbeats could be written: a
// full disk can still be read.
func (h *health) checkDatabase(ctx context.Context, r *readiness) {
	outbox, err := h.outbox.Stats(ctx)
	switch {
	case err != nil:
		h.log.Error().Err(err).Msg("readiness: database")
		r.set("database", true, false, causeOf(err))
	case h.liveness.Unwritten() != nil:
		r.set("database", true, false, "is read, but heartbeats could not be written: "+causeOf(h.liveness.Unwritten()))
	default:
		r.set("database", true, true, "answers")
	}
	h.checkBroker(r, outbox)
}

// causeOf returns why the database fails, in words that anyone may read.
func causeOf(err error) string {
	if f, ok := errors.AsType[*store.EngineError](err); ok {
		return f.Detail
	}
	return "does not answer; look at the log"
}

// checkBroker checks what may wait: announcements are stored meanwhile.
func (h *health) checkBroker(r *readiness, stats outbox.Stats) {
	connected, text := h.broker.Check()
	outbox := stats.Describe(h.now())
	r.Checks["outbox"], r.Checks["dead-letters"] = outbox, h.broker.DescribeDead()
	if h.broker == nil { // without a broker, no announcement waits
		r.Checks["broker"] = text
		return
	}
	if r.ok["broker"] = connected; connected {
		r.Checks["broker"] = "ok: " + text
	} else {
		r.Checks["broker"], r.Degraded = text, true
	}
	if age(h.now(), stats.Oldest) > outboxPatience {
		r.set("outbox", false, false, outbox)
		return
	}
	r.ok["outbox"] = true
}

func (h *health) checkCertificates(r *readiness) {
	now, end := h.now(), h.ca.IntermediatesEnd()
	r.set("ca", true, now.Before(end), "valid until "+end.UTC().Format(time.RFC3339))
	own, err := h.certificate.Get(nil)
	if err != nil || own.Leaf == nil {
		r.set("certificate", true, false, "the control plane's own cannot be made; look at the log")
		return
	}
	r.set("certificate", true, now.Before(own.Leaf.NotAfter), "the control plane's own is valid until "+own.Leaf.NotAfter.UTC().Format(time.RFC3339))
}

func (h *health) checkListeners(r *readiness) {
	serving, counts := h.serving.Load(), h.connections()
	for name, text := range map[string]string{
		listenerAPI: "listening", listenerEdge: "listening",
		listenerTunnel: fmt.Sprintf("%d agents connected", h.tunnel.Stats().Agents),
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

func (h *health) serveReady(w http.ResponseWriter, r *http.Request) {
	answer := h.readiness(r.Context())
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
