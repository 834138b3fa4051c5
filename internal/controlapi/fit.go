package controlapi

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
)

// The authors of Apps and Ingresses choose parts of what the agent sends. The control plane refuses
// a call as a whole, so that one part it does not take would hold up those of all others. The agent
// therefore makes each part fit, or leaves it out. The limits are those of the schema, in
// characters.
const (
	maxHost, maxPath, maxReason = 253, 1024, 512 // of a Route
	maxImage, maxCause          = 512, 64        // of an AppEvent
	maxMessage                  = 4096           // and of Fix
)

// eventTypes are the types of an Event.
var eventTypes = []string{"app.progressing", "app.healthy", "app.degraded", "app.failed", "app.removed", "alert.firing", "alert.resolved"}

// fitting returns the events as the control plane takes them, without those of other types.
func fitting(events []Event) []Event {
	var fit []Event
	for _, e := range events {
		if e.App != nil {
			about := *e.App
			about.Image, about.Cause = first(ascii(about.Image), maxImage), first(ascii(about.Cause), maxCause)
			about.Message, about.Fix = first(about.Message, maxMessage), first(about.Fix, maxMessage)
			e.App = &about
		}
		if slices.Contains(eventTypes, e.Type) {
			fit = append(fit, e)
		}
	}
	return fit
}

// first returns the first characters of a text.
func first(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most])
}

// ascii returns a text with a question mark in place of each character that is not printable ASCII.
func ascii(text string) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return '?'
		}
		return r
	}, text)
}

var (
	routeHost = regexp.MustCompile(`^(\*\.)?[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`)
	pathTypes = []string{"Prefix", "Exact", "ImplementationSpecific"}
	errUnfit  = errors.New("the host, the path, its type or the reason is not as the control plane takes it")
)

// Fits returns why the control plane would refuse the route, also if it came alone.
func (r Route) Fits() error {
	if len(r.Host) > maxHost || utf8.RuneCountInString(r.Path) > maxPath || utf8.RuneCountInString(r.Reason) > maxReason ||
		!slices.Contains([]string{"", gatewaywire.TCP, gatewaywire.UDP, gatewaywire.TLS}, r.Protocol) || !routeHost.MatchString(r.Host) || !strings.HasPrefix(r.Path, "/") || !slices.Contains(pathTypes, r.PathType) {
		return errUnfit
	}
	return RoutesRequest{Routes: []Route{r}}.check()
}
