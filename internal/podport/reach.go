package podport

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	dialTimeout    = 2 * time.Second
	forwardTimeout = 15 * time.Second
)

// State is the result of one try of one port.
type State int

// What a port can be.
const (
	Mute     State = iota // the pod cannot be reached
	Open                  // it accepts connections
	Refused               // nothing listens
	Loopback              // it accepts connections inside the pod alone
)

// Reach tries ports of pods.
type Reach struct {
	Dial    func(ctx context.Context, address string) error
	Forward func(ctx context.Context, pod *corev1.Pod, port int32) error
}

// NewReach tries ports from this process, and by the API server.
func NewReach(f Forwarder) Reach {
	var d net.Dialer
	return Reach{Forward: f.Try, Dial: func(ctx context.Context, address string) error {
		conn, err := d.DialContext(ctx, "tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err
	}}
}

// Port tries a port from outside, and from inside the pod if that gets no connection: a
// NetworkPolicy can refuse the agent just as the pod does. A port counts as refused only if both
// tries are refused.
func (r Reach) Port(ctx context.Context, pod *corev1.Pod, port int32) State {
	direct, cancel := context.WithTimeout(ctx, dialTimeout)
	outside := r.Dial(direct, net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(int(port))))
	cancel()
	if outside == nil {
		return Open
	}
	inside, cancel := context.WithTimeout(ctx, forwardTimeout)
	err := r.Forward(inside, pod, port)
	cancel()
	switch {
	case err == nil && errors.Is(outside, syscall.ECONNREFUSED):
		return Loopback
	case err == nil:
		return Open
	case strings.Contains(err.Error(), "connection refused"):
		return Refused
	}
	return Mute
}
