package webhook

import (
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// What every service allows, in bytes, also where each character is escaped.
const maxTitle, maxNoticeText = 120, 1000

// notice is an event as people read it.
type notice struct {
	Title, Text, Fix string
	Link             string // the console's page; empty for none
}

// newNotice returns the notice of an event. console is the console's URL; empty for none.
func newNotice(e announce.Event, agent, console string) notice {
	n := notice{}
	_, state, _ := strings.Cut(string(e.Type), ".")
	namespace, name := "", ""
	if app, err := e.App(); err == nil {
		namespace, name = app.Namespace, app.Name
		n.Title = "App " + namespace + "/" + name + " on " + agent + ": " + state
		n.Text, n.Fix = sentences(app.Cause, app.Message), app.Fix
	} else if route, err := e.Route(); err == nil {
		namespace, name = route.Namespace, route.App
		n.Title, n.Text = "Host "+route.Host+" on "+agent+": "+state, route.Reason
	} else if alert, err := e.Alert(); err == nil {
		namespace, name = alert.Namespace, alert.App
		n.Title, n.Text = "Alert "+alert.Name+" on "+agent+": "+state, sentences(alert.Severity, alert.Summary)
	} else {
		n.Title = "Agent " + agent + ": " + state
		if e.Type == announce.AgentCloned {
			n.Text = "The agent's identity is in use twice."
		}
	}
	if console != "" {
		n.Link = console + controlapi.AgentPage(e.AgentID)
		if name != "" {
			n.Link = console + controlapi.AppPage(e.AgentID, namespace, name)
		}
	}
	n.Title, n.Text, n.Fix = clip(n.Title, maxTitle), clip(n.Text, maxNoticeText), clip(n.Fix, maxNoticeText)
	return n
}

// sentences joins a word and what explains it.
func sentences(word, text string) string {
	if word == "" || text == "" {
		return word + text
	}
	return word + ": " + text
}

// clip returns a text that fits, without characters that hide others.
func clip(text string, most int) string { return printable.Shorten(printable.Lines(text), most) }
