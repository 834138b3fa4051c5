package app

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/internal/podport"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// PortForward implements server.Insides. It uses the API server, as kubectl does: the agent need
// not be in the cluster's network.
func (e *Engine) PortForward(ctx context.Context, key runnerapi.Key, opts runnerapi.PortForwardOptions) (runnerapi.Forwarding, error) {
	pod, err := e.podInside(ctx, key, opts.Pod, key.Name)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, conn runnerapi.HalfCloser) error {
		defer func() { _ = conn.Close() }()
		streams, err := e.forwarder().Connect(ctx, pod)
		if err != nil {
			return insideProblem(err, pod.Name)
		}
		defer func() { _ = streams.Close() }()
		defer context.AfterFunc(ctx, func() { _ = streams.Close() })()
		if err := podport.Forward(ctx, streams, opts.Port, conn); err != nil && ctx.Err() == nil {
			return insideProblem(err, pod.Name)
		}
		return ctx.Err()
	}, nil
}

func (e *Engine) forwarder() podport.Forwarder {
	return podport.Forwarder{Config: e.rest, Core: e.core}
}
