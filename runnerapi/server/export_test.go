package server

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"
	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/wire"
)

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
	DecodeLogLine = wire.DecodeLogLine
	ReadLog       = wire.ReadLog
	ParseSince    = parseSince

	ReadKubernetes = readKubernetes
)

// AuditArguments are those of a call without what else is known of it.
func AuditArguments(call runnerapi.Call, query map[string][]string, body []byte) json.RawMessage {
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
func (f Frames) End(why *runnerapi.Error) []byte { return f.end(why) }
