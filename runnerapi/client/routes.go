package client

import (
	"context"
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Routes are the calls about hosts that the public can reach.
type Routes struct{ *core }

// Traffic returns what visitors of an App requested over the last hour, or the last day.
func (r Routes) Traffic(ctx context.Context, key runnerapi.Key, opts runnerapi.TrafficOptions) (runnerapi.Traffic, error) {
	call := objectRequest("get-app-traffic", key)
	call.query = map[string]string{}
	if opts.Since > time.Hour {
		call.query["since"] = "24h"
	}
	return fetch[runnerapi.Traffic](ctx, r.core, call)
}

// AccessLog calls emit for each of the last requests of an App's visitors and, with Follow, for
// each new one until ctx ends. It resumes as Logs does, where the log may then be that of another
// replica of the agent, which each line names as its pod.
func (r Routes) AccessLog(ctx context.Context, key runnerapi.Key, opts runnerapi.LogOptions, emit func(runnerapi.LogLine) error) error {
	return r.logs(ctx, objectRequest("get-app-access-log", key), opts, emit)
}

// List reads the public routes of an agent.
func (r Routes) List(ctx context.Context) ([]runnerapi.Route, error) {
	return pages(ctx, r.core, newRequest("list-routes"), func(l runnerapi.RouteList) ([]runnerapi.Route, runnerapi.Page) { return l.Items, l.Page })
}
