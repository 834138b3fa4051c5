package server

import (
	"context"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/params"
)

type trafficOutput struct{ Body runnerapi.Traffic }

type accessLogInput struct {
	params.App
	params.Lines
}

// traffic documents the calls about what visitors did.
func (s *routeCalls) traffic() {
	register(s.calls, operation("get-app-traffic", "Apps", "Get an App's public requests",
		"Requests, errors, bytes and latency by host, which the agent counts itself: of all its replicas, where those of another one may be a minute old. "+
			"What comes to a host in direct mode is not counted. See docs/reference/gateway.md.", 0), s.getTraffic)
	huma.Register(s.api, s.sendsLog(operation("get-app-access-log", "Apps", "Read an App's access log",
		"The last requests of visitors that the replica of the agent which takes this call has passed on. It keeps them in memory, while a rule of the customer's policy names "+
			"this call. Sent as an App's log is.", 0)), s.getAccessLog)
}

func (s *routeCalls) getTraffic(ctx context.Context, in *struct {
	params.App
	params.Traffic
}) (*trafficOutput, error) {
	opts := runnerapi.TrafficOptions{Since: time.Hour}
	if in.Since == "24h" {
		opts.Since = 24 * time.Hour
	}
	t, err := s.public.Traffic(ctx, appKey(in.App), opts)
	t.Hosts, t.Points = notNil(t.Hosts), notNil(t.Points)
	return &trafficOutput{Body: t}, err
}

func (s *routeCalls) getAccessLog(ctx context.Context, in *accessLogInput) (*streamOutput, error) {
	opts, err := lineOptions(in.Lines)
	if err != nil {
		return nil, s.wireError(ctx, err)
	}
	return s.sendLogOf(ctx, in.Accept, opts, func(ctx context.Context, emit func(runnerapi.LogLine) error) error {
		return s.public.AccessLog(ctx, appKey(in.App), opts, emit)
	}), nil
}
