package runnerapi

import (
	"net/http"
	"slices"

	"github.com/go-chi/chi/v5"
	"github.com/rs/zerolog"
)

// Routes are all calls of the server, as "METHOD /path", in order.
func Routes() []string {
	router, _ := newRouter(Config{Log: zerolog.Nop()})
	var routes []string
	_ = chi.Walk(router, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
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

	AuditArguments = auditArguments
)
