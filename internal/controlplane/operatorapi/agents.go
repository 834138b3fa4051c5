package operatorapi

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
)

// The calls about agents.
var (
	ListAgents = Call[ListAgentsInput, Agents]{
		Description{Method: "GET", Path: Prefix + "agents", ID: "list-agents", Role: administration.RoleViewer, Command: "agent list",
			Summary: "List agents and pending registrations"}, listAgents,
	}
	ListAgentStates = Call[ListAgentStatesInput, AgentStates]{
		Description{Method: "GET", Path: Prefix + "agent-states", ID: "list-agent-states", Role: administration.RoleViewer, Command: "agent list",
			Summary: "List the states of agents, those that need attention first"}, listAgentStates,
	}
	GetAgent = Call[GetAgentInput, AgentDetail]{
		Description{Method: "GET", Path: Prefix + "agents/{agent}", ID: "get-agent", Role: administration.RoleViewer, Command: "agent get",
			Summary: "Show an agent with its latest events"}, getAgent,
	}
	GetTimeline = Call[TimelineInput, Timeline]{
		Description{Method: "GET", Path: Prefix + "agents/{agent}/timeline", ID: "get-agent-timeline", Role: administration.RoleViewer, Command: "agent timeline",
			Summary: "Read the timeline of an agent and its Apps, newest first"}, getTimeline,
	}
	GetAgentAudit = Call[AgentAuditInput, runnerapi.AuditList]{
		Description{Method: "GET", Path: Prefix + "agents/{agent}/audit", ID: "get-agent-audit", Role: administration.RoleViewer, Command: "agent audit",
			Summary: "Search the audit log that an agent sent, newest call first"}, getAgentAudit,
	}
	LabelAgent = Call[LabelAgentInput, announce.Agent]{
		Description{Method: "POST", Path: Prefix + "agents/{agent}/labels", ID: "label-agent", Role: administration.RoleOperator, Command: "agent label",
			Summary: "Set or remove labels of an agent"},
		func(ctx context.Context, a *administration.Admin, in *LabelAgentInput) (announce.Agent, error) {
			return a.Agents.Label(ctx, in.Agent, in.Body.Set, in.Body.Remove)
		},
	}
	ApproveAgent = Call[AgentInput, Registration]{
		Description{Method: "POST", Path: Prefix + "agents/{agent}/approve", ID: "approve-agent", Role: administration.RoleOperator, Command: "agent approve",
			Summary: "Approve a pending registration"},
		func(ctx context.Context, a *administration.Admin, in *AgentInput) (Registration, error) {
			return registrationOf(a.Enrolments.Approve(ctx, in.Agent))
		},
	}
	DenyAgent = Call[DenyAgentInput, Registration]{
		Description{Method: "POST", Path: Prefix + "agents/{agent}/deny", ID: "deny-agent", Role: administration.RoleOperator, Command: "agent deny",
			Summary: "Deny a pending registration"},
		func(ctx context.Context, a *administration.Admin, in *DenyAgentInput) (Registration, error) {
			return registrationOf(a.Enrolments.Deny(ctx, in.Agent, in.Body.Reason))
		},
	}
	RevokeAgent = Call[AgentInput, announce.Agent]{
		Description{Method: "POST", Path: Prefix + "agents/{agent}/revoke", ID: "revoke-agent", Role: administration.RoleOperator, Command: "agent revoke",
			Summary: "Revoke an agent's access"},
		func(ctx context.Context, a *administration.Admin, in *AgentInput) (announce.Agent, error) {
			return a.Agents.Revoke(ctx, in.Agent)
		},
	}
	DeleteAgent = Call[AgentInput, announce.Agent]{
		Description{Method: "DELETE", Path: Prefix + "agents/{agent}", ID: "delete-agent", Role: administration.RoleOperator, Command: "agent delete",
			Summary: "Delete a revoked agent"},
		func(ctx context.Context, a *administration.Admin, in *AgentInput) (announce.Agent, error) {
			return a.Agents.Remove(ctx, in.Agent)
		},
	}
)

// AgentInput names an agent, or a registration that waits for approval.
type AgentInput struct {
	Write
	Agent string `path:"agent" maxLength:"253" doc:"Name or ID."`
}

// DenyAgentInput names a registration.
type DenyAgentInput struct {
	Write
	Agent string `path:"agent" maxLength:"253" doc:"Name or ID."`
	Body  DenyAgentBody
}

// DenyAgentBody says why a registration is denied.
type DenyAgentBody struct {
	Reason string `json:"reason,omitempty" maxLength:"512" doc:"Reason that the agent reports."`
}

// LabelAgentInput names an agent and the changes of its labels.
type LabelAgentInput struct {
	Write
	Agent string `path:"agent" maxLength:"253" doc:"Name or ID."`
	Body  LabelAgentBody
}

// LabelAgentBody has the changes of an agent's labels.
type LabelAgentBody struct {
	Set    map[string]string `json:"set,omitempty" doc:"Labels to set."`
	Remove []string          `json:"remove,omitempty" maxItems:"256" doc:"Keys of labels to remove."`
}

// AgentFilter selects agents.
type AgentFilter struct {
	Search   string `query:"search" maxLength:"256" doc:"Words that the agent's name, ID, labels, versions, distribution or provider have."`
	Selector string `query:"selector" maxLength:"1024" doc:"Selects agents by label, in the syntax of a Runner's grant." example:"env=prod,region in (eu,us)"`
	State    string `query:"state" enum:"pending,online,offline,revoked"`
	Wrong    bool   `query:"wrong" doc:"Only agents that need attention: offline, in use twice, with a failed update, a failed check or a component that is not ready."`
}

func (f *AgentFilter) query() (store.AgentQuery, error) {
	selector, err := selectorOf(f.Selector)
	return store.AgentQuery{Search: f.Search, Selector: selector, State: announce.State(f.State), Wrong: f.Wrong}, err
}

// ListAgentsInput selects agents. The selection does not extend to registrations that wait.
type ListAgentsInput struct {
	AgentFilter
	Order  string `query:"order" enum:"name,urgency" default:"name" doc:"urgency lists agents that need attention first."`
	Offset int    `query:"offset" minimum:"0" doc:"How many agents to skip."`
	Limit  int    `query:"limit" minimum:"0" maximum:"1000" doc:"How many agents to return; 0 for all."`
}

// Agents are agents, and the registrations that wait for approval.
type Agents struct {
	Agents  []announce.Agent `json:"agents" nullable:"false"`
	Waiting []Registration   `json:"waiting" nullable:"false"`
	Total   int              `json:"total" doc:"How many agents are selected, on this page or not."`
	// States and Wrong are about all agents.
	States map[announce.State]int `json:"states" nullable:"false" doc:"How many agents there are in each state."`
	Wrong  int                    `json:"wrong" doc:"How many agents need attention."`
	// FailedChecks is about the agents of this page.
	FailedChecks map[string][]string `json:"failedChecks,omitempty" doc:"Names of the checks that failed, by the agent's ID."`
}

// Registration is one that waited, or waits, for approval.
type Registration struct {
	store.Enrolment
	Stated Stated `json:"stated" doc:"What the agent stated about itself."`
}

// Stated is what an agent stated about itself when it asked to be registered.
type Stated struct {
	Labels            map[string]string `json:"labels,omitempty"`
	AgentVersion      string            `json:"agentVersion,omitempty"`
	KubernetesVersion string            `json:"kubernetesVersion,omitempty"`
	Distribution      string            `json:"distribution,omitempty"`
	Provider          string            `json:"provider,omitempty"`
}

func registrationOf(e store.Enrolment, err error) (Registration, error) {
	r := e.Request
	return Registration{e, Stated{r.Labels, r.AgentVersion, r.KubernetesVersion, r.Distribution, r.Provider}}, err
}

func listAgents(ctx context.Context, a *administration.Admin, in *ListAgentsInput) (Agents, error) {
	query, err := in.query()
	if err != nil {
		return Agents{}, err
	}
	query.ByUrgency, query.Offset, query.Limit = in.Order == "urgency", in.Offset, in.Limit
	found, err := a.Agents.Find(ctx, query)
	if err != nil {
		return Agents{}, err
	}
	waiting, err := a.Enrolments.List(ctx)
	if err != nil {
		return Agents{}, err
	}
	list := Agents{Agents: found.Agents, Waiting: make([]Registration, len(waiting)), Total: found.Total, States: found.States, Wrong: found.Wrong, FailedChecks: found.FailedChecks}
	for i, e := range waiting {
		list.Waiting[i], _ = registrationOf(e, nil)
	}
	return list, nil
}

// ListAgentStatesInput selects agents, and a label of them.
type ListAgentStatesInput struct {
	AgentFilter
	By string `query:"by" maxLength:"317" doc:"Key of the label whose value is returned." example:"env"`
}

// AgentStates are the states of agents.
type AgentStates struct {
	Agents []store.AgentState `json:"agents" nullable:"false" doc:"The first 10000."`
	Keys   []string           `json:"keys" nullable:"false" doc:"Keys of the labels that these agents have."`
	Total  int                `json:"total" doc:"How many agents are selected, returned or not."`
}

func listAgentStates(ctx context.Context, a *administration.Admin, in *ListAgentStatesInput) (AgentStates, error) {
	query, err := in.query()
	if err != nil {
		return AgentStates{}, err
	}
	found, err := a.Agents.States(ctx, query, in.By)
	return AgentStates{append([]store.AgentState{}, found.Agents...), append([]string{}, found.Keys...), found.Total}, err
}

// selectorOf parses a selector of agents.
func selectorOf(text string) (credentials.Grant, error) {
	selector, err := credentials.ParseGrant(text)
	if err != nil {
		return selector, problem.Errorf(problem.Invalid, "write a selector such as env=prod,region in (eu,us)", "%v", err).WithField("query.selector")
	}
	return selector, store.CheckSelector(selector)
}

// GetAgentInput names an agent.
type GetAgentInput struct {
	Agent  string `path:"agent" maxLength:"253" doc:"Name or ID."`
	Events int    `query:"events" minimum:"0" maximum:"1000" doc:"How many of the latest events to return."`
}

// AgentDetail is an agent with its latest events, newest first.
type AgentDetail struct {
	Agent  announce.Agent    `json:"agent"`
	Checks *store.Checks     `json:"checks,omitempty" doc:"What the checks of the running agent found last; absent before its first report."`
	Events []json.RawMessage `json:"events" nullable:"false" doc:"CloudEvents."`
}

func getAgent(ctx context.Context, a *administration.Admin, in *GetAgentInput) (AgentDetail, error) {
	found, err := a.Agents.Get(ctx, in.Agent, in.Events)
	if err != nil {
		return AgentDetail{}, err
	}
	encoded, err := encodeEvents(found.Events)
	return AgentDetail{found.Agent, found.Checks, encoded}, err
}

// TimelineInput selects from an agent's timeline.
type TimelineInput struct {
	Agent     string          `path:"agent" maxLength:"253" doc:"Name or ID."`
	Namespace string          `query:"namespace" maxLength:"63"`
	App       string          `query:"app" maxLength:"253"`
	Types     []announce.Type `query:"type" maxItems:"50" doc:"Types of events, separated by commas."`
	Since     time.Time       `query:"since" doc:"Only events from this time on."`
	Before    uint64          `query:"before" doc:"Only events with a smaller sequence number."`
	Limit     int             `query:"limit" minimum:"0" maximum:"1000" doc:"How many events to return; 0 for the default."`
}

// Timeline is a page of a timeline, newest event first.
type Timeline struct {
	Events []json.RawMessage `json:"events" nullable:"false" doc:"CloudEvents."`
	More   bool              `json:"more" doc:"There are older events."`
}

func getTimeline(ctx context.Context, a *administration.Admin, in *TimelineInput) (Timeline, error) {
	page, err := a.Agents.Timeline(ctx, in.Agent, announce.TimelineQuery{
		Namespace: in.Namespace, App: in.App, Types: in.Types, Since: in.Since, Before: in.Before, Limit: in.Limit,
	})
	if err != nil {
		return Timeline{}, err
	}
	encoded, err := encodeEvents(page.Events)
	return Timeline{encoded, page.More}, err
}

func encodeEvents(events []announce.Event) ([]json.RawMessage, error) {
	list := make([]json.RawMessage, len(events))
	for i := range events {
		text, err := events[i].Encode()
		if err != nil {
			return nil, fmt.Errorf("event %s: %w", events[i].ID, err)
		}
		list[i] = text
	}
	return list, nil
}

// DecodeEvents decodes the events of an answer.
func DecodeEvents(list []json.RawMessage) ([]announce.Event, error) {
	events := make([]announce.Event, len(list))
	for i, text := range list {
		var err error
		if events[i], err = announce.Decode(text); err != nil {
			return nil, fmt.Errorf("event %d of the answer: %w", i, err)
		}
	}
	return events, nil
}

// AgentAuditInput selects calls in an agent's audit log.
type AgentAuditInput struct {
	Agent string `path:"agent" maxLength:"253" doc:"Name or ID."`
	runnerapi.AuditFilter
}

func getAgentAudit(ctx context.Context, a *administration.Admin, in *AgentAuditInput) (runnerapi.AuditList, error) {
	list, err := a.Agents.Audit(ctx, in.Agent, in.AuditFilter)
	if list.Items == nil {
		list.Items = []runnerapi.AuditCall{}
	}
	return list, err
}
