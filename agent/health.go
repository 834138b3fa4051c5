package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/transport"
)

// The limits of the health port. Every pod may be able to reach it: a client that uses all it can
// must not keep the kubelet out.
const (
	healthConnections = 256
	healthPerPeer     = 32
	healthTimeout     = 10 * time.Second
)

// stateOK is the state of a successful check.
const stateOK = "ok"

// health is the one place that knows whether the agent is ready, and if not, why.
type health struct {
	mu     sync.Mutex
	checks map[string]func() string
	worse  map[string]func() string // called by degraded
	// silent is when the control plane did not answer first; the zero time while it does.
	silent time.Time
}

func newHealth() *health {
	h := &health{checks: map[string]func() string{}, worse: map[string]func() string{}}
	for _, check := range []string{"identity", "tunnel", "apps", "policy"} {
		h.set(check, "starting")
	}
	return h
}

// set records a check's state: stateOK, or what is missing.
func (h *health) set(check, state string) {
	h.ask(check, func() string { return state })
}

// ask registers a function that returns a check's state on demand.
func (h *health) ask(check string, state func() string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checks[check] = state
}

// all returns the checks, and whether each is successful.
func (h *health) all() map[string]bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make(map[string]bool, len(h.checks))
	for name, state := range h.checks {
		all[name] = state() == stateOK
	}
	return all
}

// ready returns nil, or an error that lists all that is missing, and what is worse beside that.
func (h *health) ready(context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var missing []string
	for name, state := range h.checks {
		if s := state(); s != stateOK {
			missing = append(missing, name+": "+s)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	slices.Sort(missing)
	return errors.New(strings.Join(append(missing, h.remarks()...), "; "))
}

// answered records whether the control plane answered a heartbeat. While it does not, the agent
// stays ready: Runners may reach it all the same.
func (h *health) answered(now time.Time, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		h.silent = time.Time{}
		delete(h.worse, "control plane")
		return
	}
	if h.silent.IsZero() {
		h.silent = now
	}
	line := "control plane: no answer since " + h.silent.UTC().Format(time.RFC3339) + ": " + strings.ReplaceAll(err.Error(), "; ", ", ")
	h.worse["control plane"] = func() string { return line }
}

// remark registers a function that returns a problem of a kind that leaves the agent ready; nil
// removes it.
func (h *health) remark(kind string, worse func() string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.worse[kind] = worse; worse == nil {
		delete(h.worse, kind)
	}
}

// degraded returns the problems that leave the agent ready; empty if there are none.
func (h *health) degraded() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.remarks(), "; ")
}

// remarks returns the problems that leave the agent ready. The caller holds mu.
func (h *health) remarks() (all []string) {
	for _, kind := range slices.Sorted(maps.Keys(h.worse)) {
		if worse := h.worse[kind](); worse != "" {
			all = append(all, worse)
		}
	}
	return all
}

// status implements sdnotify.Look.
func (h *health) status(ctx context.Context) (ready bool, text string) {
	if err := h.ready(ctx); err != nil {
		return false, err.Error()
	}
	if worse := h.degraded(); worse != "" {
		return true, "ready; " + worse
	}
	return true, "ready"
}

// serve serves /healthz and /readyz, on the only port that the agent always has, until the returned
// function is called.
func (h *health) serve(ctx context.Context, address, version string, log zerolog.Logger) (stop func(), err error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("PIPEOPS_HEALTH_ADDRESS: %w (fix: choose a free port)", err)
	}
	log.Info().Str("address", l.Addr().String()).Msg("health port is open")
	limited := limit.Listen(l, limit.Config{
		Name: "health", Connections: healthConnections, PerPeer: healthPerPeer, NewPerSecond: healthPerPeer, Log: log,
	})
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := transport.Serve(life, limited, transport.ServeConfig{
			Handler: server.NewHealth(version, h.ready, h.degraded), CallTimeout: healthTimeout, Drain: time.Second, Log: log,
		})
		if err != nil {
			log.Error().Err(err).Msg("health port failed")
		}
	}()
	return func() {
		cancel()
		<-done
	}, nil
}
