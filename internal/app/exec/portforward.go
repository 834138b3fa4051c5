package exec

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/internal/podport"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// PortForward implements backend.Sessions. It uses the API server, as kubectl does: the agent need
// not be in the cluster's network.
func (x *Executor) PortForward(ctx context.Context, key runnerapi.Key, opts runnerapi.PortForwardOptions) (runnerapi.Forwarding, error) {
	pod, err := x.podInside(ctx, key, opts.Pod, key.Name)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, conn runnerapi.HalfCloser) error {
		defer func() { _ = conn.Close() }()
		streams, err := x.forwarder().Connect(ctx, pod)
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

func (x *Executor) forwarder() podport.Forwarder {
	return podport.Forwarder{Config: x.rest, Core: x.core}
}
