package controlapi_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// streams lead to a server without TLS, or fail.
type streams struct {
	dial           func(context.Context) (net.Conn, error)
	settled, asked atomic.Int64
}

// Settle implements controlapi.Streams.
func (s *streams) Settle(context.Context) { s.settled.Add(1) }

// DialAPI implements controlapi.Streams.
func (s *streams) DialAPI(ctx context.Context) (net.Conn, error) {
	s.asked.Add(1)
	return s.dial(ctx)
}

// waysTo makes a client whose heartbeats are answered with 1 by separate connections, and
// with 2 by streams.
func waysTo(t *testing.T, change func(*controlapi.ClientConfig)) (client *controlapi.Client, s *streams, byTLS, byStream *atomic.Int64) {
	t.Helper()
	byTLS, byStream = &atomic.Int64{}, &atomic.Int64{}
	ca := newAuthority(t)
	agent := ca.issue(t, func(c *x509.Certificate) { c.Subject = pkix.Name{CommonName: "a1"} })
	counting := func(n *atomic.Int64, interval int) *backend {
		return &backend{
			heartbeat: func(id string, _ controlapi.Heartbeat) (controlapi.HeartbeatAnswer, error) {
				assert.Equal(t, "a1", id)
				n.Add(1)
				return controlapi.HeartbeatAnswer{IntervalSeconds: interval}, nil
			},
			check: func(string) (controlapi.TokenState, error) {
				n.Add(1)
				return controlapi.TokenState{}, nil
			},
		}
	}
	direct := serveTLS(t, handlerOf(counting(byTLS, 1), zerolog.Nop()), ca.issue(t, unchanged))
	leaf, err := x509.ParseCertificate(agent.Certificate[0])
	require.NoError(t, err)
	handler := handlerOf(counting(byStream, 2), zerolog.Nop())
	inTunnel := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(inTunnel.Close)
	s = &streams{dial: func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", inTunnel.Listener.Addr().String())
	}}
	client = newClient(t, direct.URL, &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: ca.pool(), Certificates: []tls.Certificate{agent}},
		func(c *controlapi.ClientConfig) {
			c.Streams = s
			change(c)
		})
	return client, s, byTLS, byStream
}

func TestClient_PrefersTunnel(t *testing.T) {
	client, s, byTLS, byStream := waysTo(t, noChange)
	for range 3 {
		answer, err := client.Heartbeat(t.Context(), controlapi.Heartbeat{})
		require.NoError(t, err)
		assert.Equal(t, 2, answer.IntervalSeconds)
	}
	assert.EqualValues(t, 3, byStream.Load())
	assert.EqualValues(t, 3, s.settled.Load(), "once a call")

	// What goes without the agent's certificate proves nobody, so it takes no stream.
	_, err := client.CheckToken(t.Context(), newTestToken(t, ""), controlapi.TokenCheck{})
	require.NoError(t, err)
	assert.EqualValues(t, 1, byTLS.Load())
	assert.EqualValues(t, 3, s.asked.Load())
	assert.EqualValues(t, 3, s.settled.Load())
}

func TestClient_DirectWithoutTunnel(t *testing.T) {
	client, s, byTLS, byStream := waysTo(t, func(c *controlapi.ClientConfig) { c.Retries = -1 })
	working := s.dial
	s.dial = func(context.Context) (net.Conn, error) { return nil, errors.New("no tunnel is up") }
	_, err := client.Heartbeat(t.Context(), controlapi.Heartbeat{})
	require.NoError(t, err, "at once, and not when it is tried again")
	assert.EqualValues(t, 1, byTLS.Load())
	s.dial = working
	_, err = client.Heartbeat(t.Context(), controlapi.Heartbeat{})
	require.NoError(t, err)
	assert.EqualValues(t, 1, byStream.Load())
}

// A dead session may be up for a while.
func TestClient_DirectAfterFailedStream(t *testing.T) {
	unwell := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	t.Cleanup(unwell.Close)
	for name, dial := range map[string]func(context.Context) (net.Conn, error){
		"ends": func(context.Context) (net.Conn, error) {
			here, there := net.Pipe()
			return here, there.Close()
		},
		"leads to who is unwell": func(ctx context.Context) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", unwell.Listener.Addr().String())
		},
	} {
		t.Run(name, func(t *testing.T) {
			client, s, byTLS, byStream := waysTo(t, noChange)
			s.dial = dial
			_, err := client.Heartbeat(t.Context(), controlapi.Heartbeat{})
			require.NoError(t, err)
			assert.EqualValues(t, 1, s.asked.Load())
			assert.EqualValues(t, 1, byTLS.Load())
			assert.Zero(t, byStream.Load())
		})
	}
}

// A call ends while it waits for the response.
func TestClient_ClosesStream(t *testing.T) {
	client, s, _, _ := waysTo(t, noChange)
	ended, called := make(chan struct{}), make(chan struct{})
	s.dial = func(context.Context) (net.Conn, error) {
		here, there := net.Pipe()
		go func() {
			defer close(ended)
			buffer := make([]byte, 1024)
			for n := 0; ; n++ {
				if _, err := there.Read(buffer); err != nil {
					return
				}
				if n == 0 {
					close(called)
				}
			}
		}()
		return here, nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := client.Heartbeat(ctx, controlapi.Heartbeat{})
		failed <- err
	}()
	await.Closed(t, called, "the call")
	cancel()
	require.ErrorIs(t, await.Receive(t, failed, "the call to end"), context.Canceled)
	await.Closed(t, ended, "the end of the stream")
}
