package exec

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/podport"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// PortForward implements backend.Sessions. It uses the API server, as kubectl does: the agent need
// not be in the cluster's network.
func (x *Executor) PortForward(ctx context.Context, key runnerapi.Key, opts runnerapi.PortForwardOptions) (runnerapi.Forwarding, error) {
	pod, err := x.podInside(ctx, key, opts.Pod, key.Name)
	if err != nil {
		return nil, err
	}
	if udpOnly(pod, opts.Port) {
		return nil, problem.Errorf(problem.Invalid, "name a port for TCP", "port %d of pod %s is for UDP, which is not forwarded", opts.Port, pod.Name).WithField("query.port")
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

// udpOnly reports whether a pod declares a port for UDP and not for TCP, as kubectl asks.
func udpOnly(pod *corev1.Pod, port int) (udp bool) {
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			if int(p.ContainerPort) == port && p.Protocol != corev1.ProtocolUDP {
				return false
			}
			udp = udp || int(p.ContainerPort) == port
		}
	}
	return udp
}

func (x *Executor) forwarder() podport.Forwarder {
	return podport.Forwarder{Config: x.rest, Core: x.core}
}
