package agents

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/authn"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/discovery"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// takeBeat handles a heartbeat, except for the CA. It writes nothing unless something changed that
// matters to a Runner: signs of life are written in batches. Any replica reports that it lives.
// Only the leader reports the agent's properties; otherwise two versions side by side would be a
// change at each heartbeat.
func (r *Fleet) takeBeat(ctx context.Context, agentID string, beat controlapi.Heartbeat) (controlapi.HeartbeatAnswer, error) {
	answer, err := r.hear(ctx, agentID, beat)
	if err != nil {
		return answer, err
	}
	var duplicate bool
	if answer.Ticket, duplicate = r.duplicates.beat(agentID, beat); duplicate {
		r.clones.Seen(ctx, agentID, announce.Clone{Instance: beat.Instance, Address: controlapi.OriginFrom(ctx).Address})
	}
	return answer, nil
}

func (r *Fleet) hear(ctx context.Context, agentID string, beat controlapi.Heartbeat) (controlapi.HeartbeatAnswer, error) {
	now := r.cfg.Now()
	agent, err := r.caller(ctx, agentID)
	if err != nil {
		return controlapi.HeartbeatAnswer{}, err
	}
	if beat.Standby {
		r.liveness.Beat(agentID, now, nil)
		if err := r.noteOutage(ctx, agent, beat.Checks); err != nil {
			return controlapi.HeartbeatAnswer{}, err
		}
		return r.beatAnswer(ctx, agent, beat, now)
	}
	capacity := discovery.CapacityOf(beat.Capacity)
	r.liveness.Beat(agentID, now, &capacity)
	// By what is stored, and not by what was heard last: other control planes hear the
	// agent, too.
	if !discovery.SameForRunners(agent, saidBy(agent, beat)) {
		if err := r.note(ctx, agentID, beat); err != nil {
			return controlapi.HeartbeatAnswer{}, err
		}
	}
	if err := r.noteChecks(ctx, agent, beat.Checks); err != nil {
		return controlapi.HeartbeatAnswer{}, err
	}
	return r.beatAnswer(ctx, agent, beat, now)
}

// caller returns the agent that calls, as it was read to see whether it may.
func (r *Fleet) caller(ctx context.Context, agentID string) (store.Agent, error) {
	if known := authn.AgentOf(ctx); known.ID == agentID {
		return known, nil
	}
	agent, err := r.store.Agent(ctx, agentID)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return store.Agent{}, authn.UnknownAgent(agentID)
	case err != nil:
		return store.Agent{}, err
	}
	return agent, nil
}

func (r *Fleet) beatAnswer(ctx context.Context, agent store.Agent, beat controlapi.Heartbeat, now time.Time) (controlapi.HeartbeatAnswer, error) {
	answer := controlapi.HeartbeatAnswer{IntervalSeconds: r.cfg.Heartbeats, Labels: agent.Labels, Tunnels: r.cfg.Tunnels(agent.ID), Console: r.cfg.Console(), VisitorSignIn: r.cfg.VisitorSignIn()}
	var err error
	if answer.RevokedRunners, err = r.store.RevokedSerials(ctx, now); err != nil {
		return answer, err
	}
	if answer.RevokedAgents, err = r.revokedAgents(ctx); err != nil {
		return answer, err
	}
	if err := r.noteLost(ctx, agent, newTo(answer.RevokedRunners, beat.RevokedRunners), newTo(answer.RevokedAgents, beat.RevokedAgents), now); err != nil {
		return answer, err
	}
	if beat.LastEvents != nil && !beat.Standby {
		if answer.ResendApps, err = lostEvents(ctx, r.store, agent.ID, *beat.LastEvents); err != nil {
			return answer, err
		}
	}
	if answer.Looks, err = r.looks(ctx, agent.ID, beat.AcknowledgedLooks); err != nil {
		return answer, err
	}
	if answer.RevokedRunnerNames, err = r.store.RevokedRunners(ctx); err != nil || beat.Update == nil || beat.Standby {
		return answer, err
	}
	answer.Offer, err = offerFor(ctx, r.store, agent.ID, beat.Update.Offer, now)
	return answer, err
}

// looks returns what the agent is to look at, without what it has acknowledged.
func (r *Fleet) looks(ctx context.Context, agentID string, acknowledged int64) ([]controlapi.Look, error) {
	if acknowledged > 0 {
		if err := r.store.AcknowledgeLooks(ctx, agentID, acknowledged); err != nil {
			return nil, err
		}
	}
	waiting, err := r.store.WaitingLooks(ctx, agentID, controlapi.MaxLooks)
	if err != nil {
		return nil, err
	}
	looks := make([]controlapi.Look, 0, len(waiting))
	for _, w := range waiting {
		looks = append(looks, controlapi.Look{Number: w.Look, Namespace: w.Namespace, Source: w.Source, Runner: w.Runner, Commit: w.Commit})
	}
	return looks, nil
}

// revokedAgents returns the agents that were revoked last, as hashes of their IDs.
func (r *Fleet) revokedAgents(ctx context.Context) ([]string, error) {
	ids, err := r.store.RevokedAgents(ctx, controlapi.MaxRevokedAgents)
	if err != nil {
		return nil, err
	}
	prints := make([]string, 0, len(ids))
	for _, id := range ids {
		prints = append(prints, controlapi.AgentPrint(id))
	}
	return prints, nil
}

// newTo returns what an agent knows as revoked and the database does not.
func newTo(revoked, refused []string) []string {
	return slices.DeleteFunc(slices.Clone(refused), func(one string) bool { return slices.Contains(revoked, one) })
}

// restored is the reason, in the log, for a revocation that an agent knows and the database does
// not.
const restored = "as revoked, and the database does not, because it was restored from an older backup "

// lostEvery is how often what one agent says of lost revocations is looked at: it reads all agents
// and Runners, and an agent can say anything in each heartbeat.
const lostEvery = 10 * time.Minute

// noteLost warns of revocations that a restore lost.
func (r *Fleet) noteLost(ctx context.Context, agent store.Agent, runners, agents []string, now time.Time) error {
	if len(runners)+len(agents) == 0 || r.lost.Wait(agent.ID, now) > 0 {
		return nil
	}
	r.lost.Failed(agent.ID, now)
	return errors.Join(r.noteLostRunners(ctx, agent, runners), r.noteLostAgents(ctx, agent, agents))
}

// noteLostRunners warns of Runners whose revocation a restore lost. An agent's word revokes no
// Runner.
func (r *Fleet) noteLostRunners(ctx context.Context, agent store.Agent, lost []string) error {
	if len(lost) == 0 {
		return nil
	}
	runners, err := r.store.Runners(ctx)
	if err != nil {
		return err
	}
	for _, runner := range runners {
		if runner.RevokedAt.IsZero() && slices.Contains(lost, runner.Serial) {
			r.cfg.Log.Warn().Str("runner", runner.Name).Str("agent", agent.Name).
				Msg("the agent knows this Runner " + restored + "(fix: `pipeops-controlplane runner revoke " + runner.Name + "`)")
		}
	}
	return nil
}

// noteLostAgents warns of agents whose revocation a restore lost. An agent's word revokes no other
// agent.
func (r *Fleet) noteLostAgents(ctx context.Context, agent store.Agent, lost []string) error {
	if len(lost) == 0 {
		return nil
	}
	agents, err := r.store.Agents(ctx)
	if err != nil {
		return err
	}
	for _, other := range agents {
		if !other.Revoked() && slices.Contains(lost, controlapi.AgentPrint(other.ID)) {
			r.cfg.Log.Warn().Str("revoked", other.Name).Str("agent", agent.Name).
				Msg("the agent knows another agent " + restored + "(fix: `pipeops-controlplane agent revoke " + other.Name + "`)")
		}
	}
	return nil
}

// saidBy returns the agent with what a heartbeat reports about it.
func saidBy(a store.Agent, beat controlapi.Heartbeat) store.Agent {
	a.AgentVersion, a.RunnerAPIVersion = beat.AgentVersion, beat.RunnerAPIVersion
	a.KubernetesVersion, a.Distribution, a.Provider = beat.KubernetesVersion, beat.Distribution, beat.Provider
	a.Capacity, a.Update = discovery.CapacityOf(beat.Capacity), announcedUpdate(beat.Update)
	a.Components = nil
	for _, c := range beat.Components {
		a.Components = append(a.Components, announce.Component{
			Name: c.Name, Version: c.Version, Ready: c.Ready, Cause: c.Cause, Message: printable.Text(c.Message),
		})
	}
	return a
}

// note writes what the agent reports about itself and announces it if it has changed.
func (r *Fleet) note(ctx context.Context, agentID string, beat controlapi.Heartbeat) error {
	now := r.cfg.Now()
	return r.store.Update(ctx, func(tx *store.Tx) error {
		a, err := authn.AdmittedAgent(ctx, tx, agentID) // again: the call was allowed before
		if err != nil {
			return err
		}
		before := a
		a = saidBy(a, beat)
		a.LastSeen = now
		if discovery.SameForRunners(before, a) {
			return nil
		}
		return r.directory.Write(ctx, tx, announce.AgentUpdated, a, now)
	})
}
