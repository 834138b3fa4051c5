package administration

import (
	"context"

	"golang.org/x/mod/semver"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

// maxFailures is how many agents an offer names whose update failed.
const maxFailures = 20

// Offered is an offer, and how far its agents are.
type Offered struct {
	store.Release
	Progress Progress `json:"progress"`
}

// Progress counts the agents to which a version is offered, by how far they are. Revoked agents do
// not count.
type Progress struct {
	Agents   int       `json:"agents" doc:"To which it is offered."`
	Taken    int       `json:"taken" doc:"Run this version, or a newer one."`
	Updating int       `json:"updating"`
	Waiting  int       `json:"waiting" doc:"Update themselves, and have not begun."`
	Off      int       `json:"off" doc:"Their cluster owners have not turned self-update on."`
	Failed   int       `json:"failed" doc:"Failed, or refused the version."`
	Failures []Failure `json:"failures" nullable:"false" doc:"20 of those that failed."`
}

// Failure is an agent whose update failed.
type Failure struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	State  string `json:"state" enum:"failed,refused"`
	Reason string `json:"reason,omitempty"`
}

// withProgress adds how far the agents are.
func (a *Releases) withProgress(ctx context.Context, releases []store.Release) ([]Offered, error) {
	if len(releases) == 0 {
		return nil, nil
	}
	agents, err := a.store.Agents(ctx)
	if err != nil {
		return nil, err
	}
	list := make([]Offered, len(releases))
	for i, r := range releases {
		list[i] = Offered{Release: r, Progress: Progress{Failures: []Failure{}}}
		for j := range agents {
			if agent := &agents[j]; !agent.Revoked() && r.IsFor(*agent) {
				list[i].Progress.add(r.Version, agent)
			}
		}
	}
	return list, nil
}

func (p *Progress) add(version string, a *store.Agent) {
	p.Agents++
	update := a.Update
	switch {
	case semver.IsValid(a.AgentVersion) && semver.Compare(a.AgentVersion, version) >= 0:
		p.Taken++
	case update == nil:
		p.Off++
	case update.To != version:
		p.Waiting++
	case update.State == string(controlapi.UpdateFailed), update.State == string(controlapi.UpdateRefused):
		if p.Failed++; len(p.Failures) < maxFailures {
			p.Failures = append(p.Failures, Failure{a.ID, a.Name, update.State, update.Reason})
		}
	case update.State == string(controlapi.UpdateUpdating):
		p.Updating++
	default:
		p.Waiting++
	}
}
