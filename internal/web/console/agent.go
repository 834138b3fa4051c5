package console

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/routes"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

const (
	// eventsShown is how many events of a timeline a page shows.
	eventsShown = 50
	// eventsOfApps is in how many events of Apps their last states are looked for.
	eventsOfApps = 500
)

// agentData is what an agent's page shows.
type agentData struct {
	announce.Agent
	Troubles []trouble
	Checks   *store.Checks // nil before the agent's first report
	Apps     []appRow
	Events   []eventRow
	Older    string // query of older events; empty for none
	First    bool   // these are the newest events
	Routes   routes.List
}

// appRow is the last that was heard of an App.
type appRow struct {
	announce.AppEvent
	State string
	At    announce.Event
}

type eventRow struct {
	announce.Event
	Text string
}

func (p *fleetPages) agent(w http.ResponseWriter, r *http.Request) error {
	read := p.readAgent(r.PathValue("name"), r.URL.Query())
	ctx, cancel := context.WithTimeout(calling(r.Context()), readTimeout)
	defer cancel()
	data, err := read(ctx)
	if err != nil {
		return err
	}
	of := page(r, data.Name, "/console/", operatorapi.ConsolePath+"/live/agents/"+url.PathEscape(data.ID)+"?"+r.URL.RawQuery)
	of.Data = data
	p.pages.Render(w, r, http.StatusOK, "agent", of)
	return nil
}

func (p *fleetPages) agentLive(w http.ResponseWriter, r *http.Request) error {
	return follow(p.site, w, r, "agent", p.readAgent(r.PathValue("name"), r.URL.Query()))
}

func (p *fleetPages) readAgent(name string, query url.Values) func(context.Context) (agentData, error) {
	before, _ := strconv.ParseUint(query.Get("before"), 10, 64) // 0 for what is not a number: the newest
	return func(ctx context.Context) (data agentData, err error) {
		found, err := operatorapi.GetAgent.Do(ctx, p.opts.API, operatorapi.GetAgentInput{Agent: name})
		if err != nil {
			return data, err
		}
		data.Agent, data.Checks, data.First = found.Agent, found.Checks, before == 0
		data.Troubles = append(troublesOf(found.Agent), failedChecks(found.Agent, found.Checks)...)
		if err := data.readEvents(ctx, p.opts.API, before); err != nil {
			return data, err
		}
		if err := data.readApps(ctx, p.opts.API); err != nil {
			return data, err
		}
		data.Routes, err = operatorapi.ListRoutes.Do(ctx, p.opts.API, operatorapi.RoutesInput{Agent: data.ID})
		return data, err
	}
}

func (d *agentData) readEvents(ctx context.Context, t operatorapi.Target, before uint64) error {
	part, err := operatorapi.GetTimeline.Do(ctx, t, operatorapi.TimelineInput{Agent: d.ID, Before: before, Limit: eventsShown})
	if err != nil {
		return err
	}
	events, err := operatorapi.DecodeEvents(part.Events)
	for _, e := range events {
		d.Events = append(d.Events, eventRow{e, operatorapi.Summary(e)})
	}
	if part.More && len(events) > 0 {
		d.Older = "?before=" + strconv.FormatUint(events[len(events)-1].Sequence, 10)
	}
	return err
}

var appTypes = []announce.Type{announce.AppProgressing, announce.AppHealthy, announce.AppDegraded, announce.AppFailed, announce.AppRemoved}

// readApps finds the last event of each App. Those in trouble come first.
func (d *agentData) readApps(ctx context.Context, t operatorapi.Target) error {
	part, err := operatorapi.GetTimeline.Do(ctx, t, operatorapi.TimelineInput{Agent: d.ID, Types: appTypes, Limit: eventsOfApps})
	if err != nil {
		return err
	}
	events, err := operatorapi.DecodeEvents(part.Events)
	seen := map[string]bool{}
	for _, e := range events {
		app, bad := e.App()
		if key := app.Namespace + "/" + app.Name; bad == nil && !seen[key] {
			seen[key] = true
			if e.Type != announce.AppRemoved {
				d.Apps = append(d.Apps, appRow{app, stateOf(e.Type, app), e})
			}
		}
	}
	slices.SortStableFunc(d.Apps, func(a, b appRow) int {
		return cmp.Or(cmp.Compare(urgency(a), urgency(b)), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return err
}

// stateOf returns the state that an event announces. A healthy App without pods is stopped.
func stateOf(kind announce.Type, app announce.AppEvent) string {
	if kind == announce.AppHealthy && app.LastRun == "" && app.Replicas == 0 {
		return "stopped"
	}
	return strings.TrimPrefix(string(kind), "app.")
}

func urgency(a appRow) int {
	return slices.Index([]announce.Type{announce.AppFailed, announce.AppDegraded, announce.AppProgressing, announce.AppHealthy}, a.At.Type)
}

// troublesOf returns what is wrong with an agent, worst first.
func troublesOf(a announce.Agent) (list []trouble) {
	if a.State == announce.StateRevoked {
		return nil
	}
	if a.State == announce.StateOffline {
		list = append(list, trouble{
			Title: "Offline", Tone: "bad", Detail: "Last seen " + cli.Ago(a.LastSeen) + ". Its Apps run on.",
			Fix: "run pipeops-agent doctor in its cluster; it names what does not connect",
		})
	}
	for _, clone := range a.Clones {
		list = append(list, trouble{
			Title: "Identity in use twice", Tone: "bad",
			Detail: "A copy " + operatorapi.WhereClone(clone) + ", called " + clone.Instance + ", comes from " + clone.Address + ".",
			Fix:    "end the copy, or have it register as its own agent",
		})
	}
	if a.Update != nil && a.Update.State == "failed" {
		list = append(list, trouble{Title: "Update to " + a.Update.To + " failed", Tone: "warn", Detail: web.Sentence(a.Update.Reason)})
	}
	for _, component := range a.Components {
		if !component.Ready {
			list = append(list, trouble{Title: component.Name + " is not ready", Tone: "warn", Detail: component.String()})
		}
	}
	return list
}

// failedChecks returns the checks that failed, for the list of what is wrong.
func failedChecks(a announce.Agent, checks *store.Checks) (list []trouble) {
	if checks == nil || a.State == announce.StateRevoked {
		return nil
	}
	for _, f := range checks.Findings {
		if f.Status == "failed" {
			list = append(list, trouble{Title: checkFailed + f.Check, Tone: "warn", Detail: web.Sentence(f.Detail), Fix: f.Fix})
		}
	}
	return list
}

var agentChanges = map[string]change{
	"/agents/{name}/label": {
		call: operatorapi.LabelAgent.ID, title: "Label {name}", page: "/console/", agent: true,
		ask: func(name string, query url.Values) web.Question {
			return agentQuestion(name, web.Question{
				Text:   "Labels decide which Runners see and reach the agent, and which releases it is offered.",
				Button: "Set the labels", Command: web.CommandLine(program+" agent label", name, "KEY=VALUE", "OTHER-"),
				Fields: []web.Field{{Kind: "text", Name: "labels", Label: "Labels", Value: query.Get("labels"), Required: true, Hint: "KEY=VALUE sets a label, KEY- removes one. Separate several by spaces."}},
			})
		},
		do: func(ctx context.Context, t operatorapi.Target, f form) (outcome, error) {
			set, remove, err := f.labels("labels")
			if err != nil {
				return outcome{}, err
			}
			_, err = operatorapi.LabelAgent.Do(ctx, t, operatorapi.LabelAgentInput{Write: f.write(), Agent: f.name, Body: operatorapi.LabelAgentBody{Set: set, Remove: remove}})
			return outcome{to: agentPath(f.name), done: "label"}, err
		},
	},
	"/agents/{name}/revoke": {
		call: operatorapi.RevokeAgent.ID, title: "Revoke {name}", page: "/console/", agent: true,
		ask: func(name string, _ url.Values) web.Question {
			return agentQuestion(name, web.Question{
				Text:   "The control plane refuses the agent from now on, and closes its tunnel. No Runner reaches it any more. Its Apps run on. This cannot be undone: the cluster has to register again.",
				Button: "Revoke the agent", Danger: true, Command: web.CommandLine(program+" agent revoke", name),
			})
		},
		do: func(ctx context.Context, t operatorapi.Target, f form) (outcome, error) {
			_, err := operatorapi.RevokeAgent.Do(ctx, t, operatorapi.AgentInput{Write: f.write(), Agent: f.name})
			return outcome{to: agentPath(f.name), done: "revoke-agent"}, err
		},
	},
	"/agents/{name}/remove": {
		call: operatorapi.DeleteAgent.ID, title: "Remove {name}", page: "/console/", agent: true,
		ask: func(name string, _ url.Values) web.Question {
			return agentQuestion(name, web.Question{
				Text:   "The agent and its timeline are deleted. Its cluster may register again, as another agent.",
				Button: "Remove the agent", Danger: true, Command: web.CommandLine(program+" agent delete", name),
			})
		},
		do: func(ctx context.Context, t operatorapi.Target, f form) (outcome, error) {
			_, err := operatorapi.DeleteAgent.Do(ctx, t, operatorapi.AgentInput{Write: f.write(), Agent: f.name})
			return outcome{to: operatorapi.ConsolePath + "/", done: "delete-agent"}, err
		},
	},
}

func agentPath(name string) string {
	return operatorapi.ConsolePath + controlapi.AgentPage(name)
}

func agentQuestion(name string, q web.Question) web.Question {
	q.Back, q.BackText = agentPath(name), name
	return q
}
