package console

import (
	"context"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/appform"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
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
	Grid       *fleetGrid // nil for the list
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
	if isGrid(r.URL.Query()) {
		live = "" // each change would send all of it again
	}
	return show(p.site, w, r, "fleet", page(r, "Fleet", "/console/", live), p.readFleet(r.URL.Query()))
}

func (p *fleetPages) fleetLive(w http.ResponseWriter, r *http.Request) error {
	return follow(p.site, w, r, "fleet", p.readFleet(r.URL.Query()))
}

func (p *fleetPages) readFleet(query url.Values) func(context.Context) (fleetData, error) {
	in := operatorapi.ListAgentsInput{Order: "urgency", Offset: web.Offset(query), Limit: web.PageSize}
	find := strings.TrimSpace(query.Get("find"))
	in.Search, in.Selector = splitSearch(find)
	show := query.Get("show")
	unknown := false
	switch {
	case show == "wrong":
		in.Wrong = true
	case show == "" || slices.Contains(agentStates, announce.State(show)):
		in.State = show
	default:
		unknown = true // in an address that was typed
	}
	return func(ctx context.Context) (fleetData, error) {
		grid, err := p.readGrid(ctx, in.AgentFilter, query, unknown)
		if err != nil {
			return fleetData{}, err
		}
		if grid != nil {
			in.Offset, in.Limit = 0, 1 // the figures about all agents are the rest of the page
		}
		list, err := operatorapi.ListAgents.Do(ctx, p.opts.API, in)
		if err != nil {
			return fleetData{}, err
		}
		if unknown {
			list.Agents, list.Total = nil, 0
		}
		rows := make([]fleetRow, len(list.Agents))
		for i, a := range list.Agents {
			rows[i] = fleetRow{a, troublesOf(a)}
			for _, name := range list.FailedChecks[a.ID] {
				rows[i].Troubles = append(rows[i].Troubles, trouble{Title: checkFailed + name})
			}
		}
		data := fleetData{Rows: web.Window(rows, list.Total, query), Find: find, Show: show, Wrong: list.Wrong, Waiting: pending(list.Waiting), Grid: grid}
		for _, state := range agentStates {
			data.All += list.States[state]
			data.States = append(data.States, stateCount{state, list.States[state]})
		}
		return data, nil
	}
}

// inSet matches a requirement such as region in (eu,us).
var inSet = regexp.MustCompile(`[^\s,]+\s+(?:not)?in\s*\([^)]*\)`)

// splitSearch returns the words to look for, and the selector of labels among them. What is no
// selector is a word.
func splitSearch(text string) (search, selector string) {
	terms := inSet.FindAllString(text, -1)
	for _, word := range appform.Words(inSet.ReplaceAllString(text, " ")) {
		if strings.ContainsAny(word, "=!") {
			terms = append(terms, word)
			continue
		}
		search += " " + word
	}
	var good []string
	for _, term := range terms {
		if _, err := credentials.ParseGrant(term); err != nil {
			search += " " + term
			continue
		}
		good = append(good, term)
	}
	return strings.TrimSpace(search), strings.Join(good, ",")
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
