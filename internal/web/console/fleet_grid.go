package console

import (
	"context"
	"net/url"
	"slices"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// viewGrid is the view of the fleet that has a square for each agent.
const viewGrid = "grid"

// fleetGrid is the fleet as squares, by the value of a label.
type fleetGrid struct {
	Groups []web.SquareGroup
	By     string
	Keys   []string // labels to choose from
	Hidden int      // agents that are not shown
	Made   time.Time
}

func isGrid(query url.Values) bool { return query.Get("view") == viewGrid }

// readGrid returns nil where the query names no grid.
func (p *fleetPages) readGrid(ctx context.Context, filter operatorapi.AgentFilter, query url.Values, none bool) (*fleetGrid, error) {
	if !isGrid(query) {
		return nil, nil //nolint:nilnil // the list is shown
	}
	grid := &fleetGrid{By: query.Get("by"), Made: p.opts.Now()}
	if none {
		return grid, nil
	}
	list, err := operatorapi.ListAgentStates.Do(ctx, p.opts.API, operatorapi.ListAgentStatesInput{AgentFilter: filter, By: grid.By})
	if err != nil {
		return nil, err
	}
	squares := make([]web.Square, len(list.Agents))
	for i, a := range list.Agents {
		squares[i] = squareOf(a)
	}
	grid.Groups, grid.Keys, grid.Hidden = web.GroupSquares(squares), list.Keys, list.Total-len(list.Agents)
	if grid.By != "" && !slices.Contains(grid.Keys, grid.By) {
		grid.Keys = append(grid.Keys, grid.By)
	}
	if last := len(grid.Groups) - 1; last >= 0 && grid.By != "" && grid.Groups[last].Name == "" {
		grid.Groups[last].Name = "Without " + grid.By
	}
	return grid, nil
}

// squareOf returns an agent as a square. The path is short: a page may have 10000.
func squareOf(a store.AgentState) web.Square {
	s := web.Square{Href: "agents/" + a.ID, Text: a.Name + ": " + string(a.State), Tone: web.Tone(a.State), Group: a.Value}
	switch {
	case a.Trouble == "" || a.State == announce.StateOffline:
		return s
	case a.Trouble == store.TroubleClone:
		s.Tone = "bad"
	default:
		s.Tone = "warn"
	}
	s.Text += ", " + string(a.Trouble)
	return s
}

// View returns the name of the view.
func (d fleetData) View() string {
	if d.Grid != nil {
		return viewGrid
	}
	return ""
}

// To returns the path of the fleet in a view, with what to search for and which agents to show.
func (d fleetData) To(view, find, show string) string {
	query := url.Values{}
	for key, value := range map[string]string{"view": view, "find": find, "show": show} {
		if value != "" {
			query.Set(key, value)
		}
	}
	if d.Grid != nil && d.Grid.By != "" && view != "" {
		query.Set("by", d.Grid.By)
	}
	if len(query) == 0 {
		return "/console/"
	}
	return "/console/?" + query.Encode()
}
