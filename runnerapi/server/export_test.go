package server

import (
	"net/http"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"
	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/wire"
)

// Routes are all calls of the server, as "METHOD /path", in order.
func Routes() []string {
	router, _ := newRouter(nil, Config{Log: zerolog.Nop()})
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

// DecodeLogLine and those after it are fuzzed from outside.
var (
	DecodeLogLine = wire.DecodeLogLine
	ReadLog       = wire.ReadLog
	ParseSince    = parseSince
)
