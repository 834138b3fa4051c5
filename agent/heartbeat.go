package agent

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/span"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
)

const (
	// busyInterval is the time between heartbeats while something changes.
	busyInterval = 5 * time.Second
	// drainInterval is the same while the agent drains. It then receives no refresh requests, and
	// revoked Runners must still be disconnected in time.
	drainInterval = 2 * time.Second
)

// heartbeats reports to the control plane that the agent is alive, and the state of its cluster:
// often while it changes, otherwise at the interval that the control plane asks for. It returns an
// error once the control plane finally refuses this agent. revoked receives the names of revoked
// Runners in each answer.
func (a *Agent) heartbeats(ctx context.Context, control *controlapi.Client, tun *tunnel.Set, engine *app.Engine, revoked func(runners []string)) error {
	idle := time.Duration(a.current.Load().HeartbeatInterval) * time.Second
	var last controlapi.Heartbeat
	for {
		next := busyInterval
		tun.Settle(ctx) // so that the first one reports the tunnel's state, and goes through it
		beat, err := a.observe(ctx, tun, engine.Leads())
		if err != nil && ctx.Err() == nil {
			a.log.Warn().Err(err).Msg("the cluster's figures could not be read; the heartbeat goes without them")
		}
		reason := a.news.ask()
		answer, err := a.sendBeat(ctx, control, beat)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the agent stops; that the call failed for it is no error
		case err != nil && isRefused(err):
			return fmt.Errorf("the control plane refuses this agent: %w", err)
		case err != nil:
			a.log.Warn().Err(err).Msg("heartbeat failed; trying again")
			a.catchUp(ctx, err)
		default:
			a.ticket = answer.Ticket
			revoked(answer.RevokedRunnerNames)
			a.news.tell(reason, answer.RevokedRunners, answer.Labels)
			a.takeOffer(beat, answer.Offer)
			a.takeCAs(ctx, answer)
			a.takeNodes(ctx, tun, answer.Tunnels)
			if answer.IntervalSeconds > 0 {
				idle = time.Duration(answer.IntervalSeconds) * time.Second
			}
			if same(beat, last) {
				next = idle
			}
			last = beat
		}
		if a.draining.Load() {
			next = drainInterval
		}
		if !a.waitBeat(ctx, min(next, idle)) {
			return nil
		}
	}
}

// sendBeat sends a heartbeat, in a trace of its own.
func (a *Agent) sendBeat(ctx context.Context, control *controlapi.Client, beat controlapi.Heartbeat) (controlapi.HeartbeatAnswer, error) {
	traced, done := span.Begin(ctx, a.opts.Tracer, "heartbeat")
	answer, err := control.Heartbeat(traced, beat)
	done(err)
	if ctx.Err() == nil {
		a.instruments.beat(err)
	}
	return answer, err
}

// waitBeat waits until the next heartbeat is due or something changes. It returns false once ctx
// has ended.
func (a *Agent) waitBeat(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-a.beat:
	case <-timer.C:
	}
	return true
}

// beatSoon requests a heartbeat now.
func (a *Agent) beatSoon() {
	select {
	case a.beat <- struct{}{}:
	default: // one is already due
	}
}

// observe returns what this replica reports. The leader reads the cluster's figures; the others
// only report that they are alive.
func (a *Agent) observe(ctx context.Context, tun *tunnel.Set, leads bool) (controlapi.Heartbeat, error) {
	beat := controlapi.Heartbeat{
		Clock: a.now(), AgentVersion: a.opts.Version, RunnerAPIVersion: runnerAPIVersion,
		TunnelPhase: tunnelPhase(tun.Status()), Standby: !leads, CABundleHash: a.reportedCAs(),
		Instance: a.replica, Process: a.process, Ticket: a.ticket,
	}
	a.tryCluster(ctx)
	if !leads {
		return beat, nil
	}
	beat.Update = a.updateStatus()
	facts, err := a.kube.Facts(ctx)
	beat.KubernetesVersion, beat.Distribution, beat.Provider = facts.KubernetesVersion, facts.Distribution, facts.Provider
	beat.Capacity = capacity(facts)
	return beat, err
}

// catchUp loads what another replica has stored when the control plane no longer accepts this one's
// certificate: this replica was suspended while the others renewed twice, or registered anew.
func (a *Agent) catchUp(ctx context.Context, refusal error) {
	var e *controlapi.Error
	if !errors.As(refusal, &e) || e.Code != controlapi.CodeCertificateUnknown {
		return
	}
	if id, err := a.newer(ctx, a.current.Load()); err == nil && id != nil && id.AgentID == a.current.Load().AgentID {
		a.adopt(id)
	}
}

// same reports whether two heartbeats describe the same state, apart from the clock and figures
// that always change.
func same(a, b controlapi.Heartbeat) bool {
	for _, h := range []*controlapi.Heartbeat{&a, &b} {
		h.Clock, h.Ticket = time.Time{}, ""
		h.Capacity.UsedCPUMillis, h.Capacity.UsedMemoryBytes = nil, nil
	}
	return reflect.DeepEqual(a, b)
}

// isRefused reports whether the control plane no longer knows this agent, or no longer admits it.
func isRefused(err error) bool {
	var e *controlapi.Error
	return isForgotten(err) || isCloned(err) || errors.As(err, &e) && e.Code == controlapi.CodeRevoked
}

// isForgotten reports whether the control plane no longer knows this agent: it was removed, or the
// control plane was reinstalled.
func isForgotten(err error) bool {
	var e *controlapi.Error
	return errors.As(err, &e) && e.Code == controlapi.CodeAgentUnknown
}
