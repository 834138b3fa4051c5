package cli

import (
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/term"
)

// coloured reports whether a table has colours: on a terminal, unless NO_COLOR is set
// (https://no-color.org).
func coloured(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd()))
}

// States by their colour, in lower case. Others have the terminal's own.
var (
	goodStates    = []string{"healthy", "online", "ready", "active", "running", "succeeded", "deployed", "serving", "synced", "applied", "complete", "on"}
	badStates     = []string{"failed", "degraded", "offline", "not ready", "notready", "firing", "suspended", "incomplete", "revoked", "denied", "refused"}
	passingStates = []string{"progressing", "pending", "waiting", "paused", "terminating", "building", "queued", "superseded", "draining"}
)

// colourOf returns a code. All have the same length, so that the columns stay aligned.
func colourOf(state string) string {
	switch state = strings.ToLower(state); {
	case slices.Contains(goodStates, state):
		return "\x1b[32m"
	case slices.Contains(badStates, state):
		return "\x1b[31m"
	case slices.Contains(passingStates, state):
		return "\x1b[33m"
	}
	return "\x1b[39m"
}

// stateHeads are the headers of columns with states, and the names of such fields.
var stateHeads = []string{"STATE", "PHASE", "STATUS", "Phase:", "State:"}

// colour colours columns under a header, and fields that have the header's place.
func (g *grid) colour() {
	column := -1
	if len(g.lines) > 0 {
		column = slices.IndexFunc(g.lines[0].cells, func(s string) bool { return slices.Contains(stateHeads[:3], s) })
	}
	for i, l := range g.lines {
		at := column
		if len(l.cells) == 2 && slices.Contains(stateHeads[3:], l.cells[0]) {
			at = 1
		}
		if at >= 0 && at < len(l.cells) {
			g.lines[i].cells[at] = colourOf(l.cells[at]) + l.cells[at] + "\x1b[0m"
		}
	}
}
