// Package podport connects to TCP ports of pods: through the API server, as kubectl does, and
// directly.
package podport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// maxForwardError bounds Kubernetes' text about a port that could not be reached.
const maxForwardError = 4 << 10

// Forwarder connects to ports by the API server: it need not be in the cluster's network.
type Forwarder struct {
	Config *rest.Config
	Core   rest.Interface // of the API group that has the pods
}

// Connect opens a connection that Forward carries connections to ports over.
func (f Forwarder) Connect(ctx context.Context, pod *corev1.Pod) (httpstream.Connection, error) {
	dialer, err := f.dialer(ctx, pod)
	if err != nil {
		return nil, err
	}
	streams, _, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
	return streams, err
}

func (f Forwarder) dialer(ctx context.Context, pod *corev1.Pod) (httpstream.Dialer, error) {
	u, rc := f.Core.Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("portforward").URL(), rest.CopyConfig(f.Config)
	// The library makes its requests without a context.
	rc.Wrap(func(next http.RoundTripper) http.RoundTripper { return withContext{ctx, next} })
	overWebSocket, err := portforward.NewSPDYOverWebsocketDialerForStreaming(u, rc)
	if err != nil {
		return nil, fmt.Errorf("prepare the connection to the pod: %w", err)
	}
	transport, upgrader, err := spdy.RoundTripperFor(rc)
	if err != nil {
		return nil, fmt.Errorf("prepare the connection to the pod: %w", err)
	}
	overSPDY := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, u)
	return portforward.NewFallbackDialerForStreaming(overWebSocket, overSPDY, httpstream.IsUpgradeFailure), nil
}

// withContext gives requests a context.
type withContext struct {
	ctx  context.Context //nolint:containedctx // it is what this is for
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (w withContext) RoundTrip(r *http.Request) (*http.Response, error) {
	return w.next.RoundTrip(r.WithContext(w.ctx))
}

// Forward carries one connection: Kubernetes has one stream for its bytes, and one for errors.
func Forward(ctx context.Context, streams httpstream.Connection, port int, conn runnerapi.HalfCloser) error {
	header := http.Header{}
	header.Set(corev1.PortHeader, strconv.Itoa(port))
	header.Set(corev1.PortForwardRequestIDHeader, "0")
	header.Set(corev1.StreamType, corev1.StreamTypeError)
	complaints, err := streams.CreateStream(header)
	if err != nil {
		return err
	}
	_ = complaints.Close() // nothing is written to it
	header.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := streams.CreateStream(header)
	if err != nil {
		return err
	}
	var work sync.WaitGroup
	complaint := make(chan error, 1)
	work.Go(func() {
		text, err := io.ReadAll(io.LimitReader(complaints, maxForwardError))
		if len(text) > 0 {
			err = errors.New(string(text))
		}
		complaint <- err
	})
	work.Go(func() {
		_, _ = io.Copy(data, conn)
		_ = data.Close() // the port reads the end, and may go on writing
	})
	_, copied := io.Copy(conn, data)
	if copied == nil {
		copied = conn.CloseWrite()
	}
	_ = data.Reset() // or what is unread would keep the complaint from coming
	err = <-complaint
	_ = conn.Close() // ends the copying to a port that reads no more
	_ = streams.Close()
	work.Wait()
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if ctx.Err() == nil {
		return copied
	}
	return nil
}

// quiet is how long a forwarded port may send nothing before it counts as open. A closed port is
// reported at once, but on a node under load that takes seconds.
const quiet = 5 * time.Second

// Try connects to a port inside a pod and sends nothing. An error is why it cannot.
func (f Forwarder) Try(ctx context.Context, pod *corev1.Pod, port int32) error {
	streams, err := f.Connect(ctx, pod)
	if err != nil {
		return err
	}
	mine, theirs := net.Pipe()
	var open atomic.Bool
	hangUp := func() { _, _ = mine.Close(), streams.Close() }
	defer context.AfterFunc(ctx, hangUp)()
	defer time.AfterFunc(quiet, func() { open.Store(true); hangUp() }).Stop()
	var reading sync.WaitGroup
	defer reading.Wait()
	defer hangUp()
	reading.Go(func() { _, _ = io.Copy(io.Discard, mine) })
	err = Forward(ctx, streams, int(port), pipeEnd{theirs})
	if open.Load() {
		return nil
	}
	return errors.Join(err, ctx.Err())
}

// pipeEnd is one end of a pipe, which is closed as a whole.
type pipeEnd struct{ net.Conn }

// CloseWrite implements runnerapi.HalfCloser.
func (p pipeEnd) CloseWrite() error { return p.Close() }
