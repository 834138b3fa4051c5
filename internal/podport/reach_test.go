package podport_test

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/podport"
)

// TestReach distinguishes what a pod and a NetworkPolicy can do to the agent's connections.
// Kubernetes' own answers to a forwarded connection are tested by failure "silent" of
// test/failures.
func TestReach(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	open := listener.Addr().(*net.TCPAddr).Port
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	closed := free.Addr().(*net.TCPAddr).Port
	require.NoError(t, free.Close())
	t.Cleanup(func() { _ = listener.Close() })

	dial := podport.NewReach(podport.Forwarder{}).Dial
	blocked := func(context.Context, string) error { return context.DeadlineExceeded }
	inside := func(err error) func(context.Context, *corev1.Pod, int32) error {
		return func(context.Context, *corev1.Pod, int32) error { return err }
	}
	refused := errors.New("failed to connect to localhost:8080 inside namespace: dial tcp4 127.0.0.1:8080: connect: connection refused")
	forbidden := errors.New("pods/portforward is forbidden")
	for name, c := range map[string]struct {
		port    int
		dial    func(context.Context, string) error
		forward error
		want    podport.State
	}{
		"it listens":                             {open, dial, forbidden, podport.Open},
		"nothing listens":                        {closed, dial, refused, podport.Refused},
		"it listens on the loopback alone":       {closed, dial, nil, podport.Loopback},
		"refused, and the pod cannot be reached": {closed, dial, forbidden, podport.Mute},
		"no way, and it listens":                 {open, blocked, nil, podport.Open},
		"no way, and nothing listens":            {closed, blocked, refused, podport.Refused},
		"no way at all":                          {open, blocked, forbidden, podport.Mute},
	} {
		t.Run(name, func(t *testing.T) {
			p := podport.Reach{Dial: c.dial, Forward: inside(c.forward)}
			pod := &corev1.Pod{Status: corev1.PodStatus{PodIP: "127.0.0.1"}}
			assert.Equal(t, c.want, p.Port(t.Context(), pod, int32(c.port)))
		})
	}
}
