package cmdutil

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// shownHeaders are those whose values are printed: no other party's secrets are in them.
var shownHeaders = []string{
	"Accept", "Allow", "Content-Length", "Content-Type", "Date", "Idempotency-Key", "Last-Event-Id", "Location",
	"Operation-Id", problem.RequestIDHeader, "Retry-After", "User-Agent",
}

// inspected returns a transport that prints calls as -v says. It prints neither bodies nor queries,
// in which there may be secrets. Each try of a call is printed.
func (a *CLI) inspected(next http.RoundTripper) http.RoundTripper {
	if a.Verbose == 0 {
		return next
	}
	return inspector{a.Streams, a.Verbose, next}
}

type inspector struct {
	Streams
	level int // of -v
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (i inspector) RoundTrip(r *http.Request) (*http.Response, error) {
	start := time.Now()
	resp, err := i.next.RoundTrip(r)
	took := time.Since(start).Round(time.Millisecond)
	call := cli.Printable(r.Method + " " + r.URL.Host + r.URL.EscapedPath())
	if err != nil {
		i.Say("%s: no response in %s: %s", call, took, cli.Printable(err.Error()))
		i.headers(">", r.Header)
		return resp, err
	}
	// The server may have given the call another ID.
	id := resp.Header.Get(problem.RequestIDHeader)
	if id == "" {
		id = r.Header.Get(problem.RequestIDHeader)
	}
	if id != "" {
		id = ", request " + id
	}
	i.Say("%s: %d in %s%s", call, resp.StatusCode, took, cli.Printable(id))
	i.headers(">", r.Header)
	i.headers("<", resp.Header)
	return resp, nil
}

func (i inspector) headers(direction string, all http.Header) {
	if i.level < 2 {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		value := "(not shown)"
		if slices.Contains(shownHeaders, name) {
			value = strings.Join(all[name], ", ")
		}
		i.Say("  %s %s", direction, cli.Printable(name+": "+value))
	}
}
