package runnerapi

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/rs/zerolog"
)

// DialingOneAtATime has the client wait for a dial as long as it takes: on a machine with a lot
// to do that may be more than the second after which it tries another address too, and a
// test that counts connections would count the machine's load.
func DialingOneAtATime(c *Client) *Client { return DialingTheNextAfter(c, time.Hour) }

// DialingTheNextAfter has the client try another address when the first hangs for that long.
// No call is under way.
func DialingTheNextAfter(c *Client, patience time.Duration) *Client {
	c.upgrades.endpoints.patience = patience
	return c
}

// BeginningAt has the client begin with that endpoint, by its place in the list.
func BeginningAt(c *Client, n int) *Client {
	c.upgrades.endpoints.first = n
	return c
}

// PatientHandshakes has the client wait an hour for the end of a handshake.
func PatientHandshakes(c *Client) *Client {
	c.upgrades.endpoints.handshake = time.Hour
	return c
}

// Routes are all calls of the server, as "METHOD /path", in order.
func Routes() []string {
	router, _ := newRouter(Config{Log: zerolog.Nop()})
	var routes []string
	_ = chi.Walk(router, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		if below, ok := strings.CutSuffix(route, "/*"); ok { // one call, with all methods
			if method != http.MethodGet {
				return nil
			}
			route = below + "/{path}"
		}
		routes = append(routes, method+" "+route)
		return nil
	})
	slices.Sort(routes)
	return routes
}

// DecodeJSON and those after it are fuzzed from outside.
var (
	DecodeJSON    = decodeJSON
	DecodeLogLine = decodeLogLine
	ReadLog       = readLog
	ParseSince    = parseSince

	ReadKubernetes = readKubernetes
)

// AuditArguments are those of a call without what else is known of it.
func AuditArguments(call Call, query map[string][]string, body []byte) json.RawMessage {
	return auditArguments(call, query, body, map[string]any{})
}

// Frames are followed from outside.
type Frames struct{ frames }

// NewFrames are those of a stream.
func NewFrames(kind string) Frames {
	return Frames{map[string]frames{
		"json": &jsonFrames{}, "protobuf": &protobufFrames{}, "websocket": &socketFrames{status: true},
	}[kind]}
}

// Follow reads on.
func (f Frames) Follow(p []byte) { f.follow(p) }

// Whole reports whether a message has just ended.
func (f Frames) Whole() bool { return f.whole() }

// End is the last message.
func (f Frames) End(why *Error) []byte { return f.end(why) }
