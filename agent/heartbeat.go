package agent

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace"

	"github.com/pipeops/pipeops-vm-agent/agent/visitors"
	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/source"
	"github.com/pipeops/pipeops-vm-agent/internal/span"
	"github.com/pipeops/pipeops-vm-agent/internal/wake"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
)

const (
	// busyInterval is the time between heartbeats while something changes.
	busyInterval = 5 * time.Second
	// drainInterval is the same while the agent drains. It then receives no refresh requests, and
	// revoked Runners must still be disconnected in time.
	drainInterval = 2 * time.Second
)

// heartbeats reports to the control plane, and hands each answer to the parts that it is for.
type heartbeats struct {
	observer
	tracer      trace.TracerProvider
	log         zerolog.Logger
	store       *identityStore
	current     *currentIdentity
	nodes       *tunnelNodes
	news        *news
	instruments *instruments
	health      *health
	beat        wake.Signal              // a heartbeat is due
	ended       func(refusal error) bool // enrolment.ended
	visitors    *visitors.SignIn
	// process names this process, and ticket is from the last answer. With them the control plane
	// detects duplicate instances.
	process, ticket string
	// revokedAgents are from the last answer. A control plane that is restored from a backup finds
	// in them what was revoked since.
	revokedAgents []string
	// draining is set when the agent is about to stop: it no longer receives refresh requests.
	draining atomic.Bool
}

// run reports to the control plane that the agent is alive, and the state of its cluster: often
// while it changes, otherwise at the interval that the control plane asks for. It returns an error
// once the control plane finally refuses this agent. sources learns from each answer which Runners
// are revoked, and which repositories have something new.
func (h *heartbeats) run(ctx context.Context, control *controlapi.Client, tun *tunnel.Set, engine *app.Engine, sources *source.Keeper) error {
	idle := time.Duration(h.current.Load().HeartbeatInterval) * time.Second
	var last controlapi.Heartbeat
	for {
		next := busyInterval
		tun.Settle(ctx) // so that the first one reports the tunnel's state, and goes through it
		beat, err := h.observe(ctx, tun, engine.Leads())
		if err != nil && ctx.Err() == nil {
			h.log.Warn().Err(err).Msg("failed to read the cluster's figures; sending the heartbeat without them")
		}
		beat.Process, beat.Ticket, beat.RevokedRunners = h.process, h.ticket, h.news.refused()
		beat.AcknowledgedLooks = sources.Acknowledged()
		beat.RevokedAgents, beat.LastEvents = h.revokedAgents, leadership(engine.Accepted())
		reason := h.news.ask()
		answer, err := h.send(ctx, control, beat)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the agent stops; that the call failed for it is not an error
		case err != nil && h.ended(err):
			return fmt.Errorf("the control plane refuses this agent: %w", err)
		case err != nil:
			h.log.Warn().Err(err).Msg("heartbeat failed; retrying")
			h.catchUp(ctx, err)
		default:
			h.ticket = answer.Ticket
			h.revokedAgents = answer.RevokedAgents[:min(len(answer.RevokedAgents), controlapi.MaxRevokedAgents)]
			sources.SetRevoked(answer.RevokedRunnerNames)
			sources.LookAt(looksOf(answer.Looks))
			sources.SetPages(pagesAt(answer.Console, h.current.Load().AgentID))
			h.visitors.Take(control, answer.VisitorSignIn)
			h.news.tell(reason, answer.RevokedRunners, answer.Labels)
			if answer.ResendApps {
				engine.ResendApps()
			}
			h.updates.take(beat, answer.Offer)
			h.cas.take(ctx, answer)
			h.nodes.take(ctx, tun, answer.Tunnels)
			if answer.IntervalSeconds > 0 {
				idle = time.Duration(answer.IntervalSeconds) * time.Second
			}
			if same(beat, last) {
				next = idle
			}
			last = beat
		}
		if h.draining.Load() {
			next = drainInterval
		}
		if !h.beat.WaitFor(ctx, min(next, idle)) {
			return nil
		}
	}
}

// pagesAt returns the pages of the console about an agent and its Apps; empty ones without a
// console.
func pagesAt(console, agentID string) func(app runnerapi.Key) string {
	return func(app runnerapi.Key) string {
		switch {
		case console == "":
			return ""
		case app == runnerapi.Key{}:
			return console + controlapi.AgentPage(agentID)
		}
		return console + controlapi.AppPage(agentID, app.Namespace, app.Name)
	}
}

func looksOf(answered []controlapi.Look) []source.Look {
	looks := make([]source.Look, 0, len(answered))
	for _, l := range answered {
		looks = append(looks, source.Look{Number: l.Number, Source: runnerapi.Key{Namespace: l.Namespace, Name: l.Source}, Runner: l.Runner, Commit: l.Commit})
	}
	return looks
}

// send sends a heartbeat, in a separate trace.
func (h *heartbeats) send(ctx context.Context, control *controlapi.Client, beat controlapi.Heartbeat) (controlapi.HeartbeatAnswer, error) {
	traced, done := span.Begin(ctx, h.tracer, "heartbeat")
	answer, err := control.Heartbeat(traced, beat)
	done(err)
	if ctx.Err() == nil {
		h.instruments.beat(err)
		h.health.answered(h.now(), err)
	}
	return answer, err
}

// catchUp loads what another replica has stored when the control plane no longer accepts this one's
// certificate: this replica was suspended while the others renewed twice, or registered again.
func (h *heartbeats) catchUp(ctx context.Context, refusal error) {
	if !problem.Is(refusal, controlapi.CodeCertificateUnknown) {
		return
	}
	if id, err := h.store.newer(ctx, h.current.Load()); err == nil && id != nil && id.AgentID == h.current.Load().AgentID {
		h.current.adopt(id)
	}
}
