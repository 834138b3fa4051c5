package console

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// stateCount is a state with its number of agents.
type stateCount struct {
	State announce.State
	Count int
}

// fleetData is what the page Fleet shows.
type fleetData struct {
	web.Rows[fleetRow]
	Find, Show string
	All, Wrong int
	Waiting    int // registrations
	States     []stateCount
}

type fleetRow struct {
	announce.Agent
	Troubles []trouble
}

// checkFailed begins the title of a failed check.
const checkFailed = "Check failed: "

// trouble is one thing that is wrong, and what to do about it: component "trouble".
type trouble struct{ Title, Detail, Fix, Href, Tone string }

var agentStates = []announce.State{announce.StateOnline, announce.StateOffline, announce.StatePending, announce.StateRevoked}

// fleetPages are the pages about agents: all of them, one, its nodes and its audit log.
type fleetPages struct{ *site }

func (p *fleetPages) fleet(w http.ResponseWriter, r *http.Request) error {
	live := operatorapi.ConsolePath + "/live/fleet?" + r.URL.RawQuery
	return show(p.site, w, r, "fleet", page(r, "Fleet", "/console/", live), p.readFleet(r.URL.Query()))
}

func (p *fleetPages) fleetLive(w http.ResponseWriter, r *http.Request) error {
	return follow(p.site, w, r, "fleet", p.readFleet(r.URL.Query()))
}

func (p *fleetPages) readFleet(query url.Values) func(context.Context) (fleetData, error) {
	in := operatorapi.ListAgentsInput{Order: "urgency", Offset: web.Offset(query), Limit: web.PageSize}
	find, others := strings.TrimSpace(query.Get("find")), []string{}
	for _, word := range words(find) {
		if strings.Contains(word, "=") {
			in.Labels = append(in.Labels, word)
			continue
		}
		others = append(others, word)
	}
	in.Search = strings.Join(others, " ")
	if in.State = query.Get("show"); in.State == "wrong" {
		in.State, in.Wrong = "", true
	}
	return func(ctx context.Context) (fleetData, error) {
		list, err := operatorapi.ListAgents.Do(ctx, p.opts.API, in)
		if err != nil {
			return fleetData{}, err
		}
		rows := make([]fleetRow, len(list.Agents))
		for i, a := range list.Agents {
			rows[i] = fleetRow{a, troublesOf(a)}
			for _, name := range list.FailedChecks[a.ID] {
				rows[i].Troubles = append(rows[i].Troubles, trouble{Title: checkFailed + name})
			}
		}
		data := fleetData{Rows: web.Window(rows, list.Total, query), Find: find, Show: query.Get("show"), Wrong: list.Wrong, Waiting: pending(list.Waiting)}
		for _, state := range agentStates {
			data.All += list.States[state]
			data.States = append(data.States, stateCount{state, list.States[state]})
		}
		return data, nil
	}
}

// pending returns how many registrations wait for a decision.
func pending(list []operatorapi.Registration) (n int) {
	for _, e := range list {
		if e.State == "pending" {
			n++
		}
	}
	return n
}
