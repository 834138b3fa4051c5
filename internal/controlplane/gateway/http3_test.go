package gateway_test

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// dialQUIC connects to the gateway by QUIC.
func (w *world) dialQUIC(ctx context.Context) (*quic.Conn, error) {
	cfg := &tls.Config{RootCAs: w.roots, ServerName: host, MinVersion: tls.VersionTLS13, NextProtos: []string{http3.NextProtoH3}}
	return quic.DialAddr(ctx, w.packets.String(), cfg, &patient)
}

// patient does not take a busy machine for a connection that broke.
var patient = quic.Config{HandshakeIdleTimeout: time.Minute, MaxIdleTimeout: time.Minute}

// client3 returns a visitor with HTTP/3.
func (w *world) client3() *http.Client {
	transport := &http3.Transport{
		TLSClientConfig: &tls.Config{RootCAs: w.roots, MinVersion: tls.VersionTLS13},
		Dial: func(ctx context.Context, _ string, tlsCfg *tls.Config, cfg *quic.Config) (*quic.Conn, error) {
			return quic.DialAddr(ctx, w.packets.String(), tlsCfg, cfg)
		},
		QUICConfig: patient.Clone(), DisableCompression: true,
	}
	w.t.Cleanup(func() { _ = transport.Close() })
	return &http.Client{Transport: transport, Timeout: time.Minute}
}

func TestHTTP3_Announced(t *testing.T) {
	w := newWorld(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Alt-Svc", `h3=":9"`)
		_, _ = fmt.Fprint(w, r.Method, r.ContentLength, r.TransferEncoding, r.Header.Get("X-Forwarded-For"))
	}))
	protocols(t, w, func(t *testing.T, c *http.Client) {
		resp, _ := do(t, c, request(t, http.MethodGet, "https://"+host+"/", nil))
		assert.Equal(t, []string{`h3=":` + strconv.Itoa(w.packets.(*net.UDPAddr).Port) + `"; ma=86400`}, resp.Header.Values("Alt-Svc"))
	})
	resp, body := do(t, w.client3(), request(t, http.MethodGet, "https://"+host+"/", nil, "X-Forwarded-For", "203.0.113.9"))
	assert.Equal(t, "HTTP/3.0", resp.Proto)
	assert.Equal(t, "GET0 []127.0.0.1", body, "without a body, as it was sent")
	assert.Empty(t, resp.Header.Values("Alt-Svc"))
	assert.NotEmpty(t, resp.Header.Get("X-Request-Id"))
}

func TestHTTP3_StreamsBodies(t *testing.T) {
	const size = 16 << 20
	w := newWorld(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sum := sha256.New()
		n, _ := io.Copy(sum, r.Body)
		w.Header().Set("Trailer", "Sum")
		_, _ = io.CopyN(w, zeros{}, n)
		w.Header().Set("Sum", hex.EncodeToString(sum.Sum(nil)))
	}))
	want := sha256.New()
	_, _ = io.CopyN(want, zeros{}, size)
	for _, method := range []string{http.MethodPost, http.MethodDelete} {
		resp, err := w.client3().Do(request(t, method, "https://"+host+"/", io.LimitReader(zeros{}, size)))
		require.NoError(t, err)
		n, err := io.Copy(io.Discard, resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.EqualValues(t, size, n)
		assert.Equal(t, hex.EncodeToString(want.Sum(nil)), resp.Trailer.Get("Sum"))
	}
}

func TestHTTP3_Limits(t *testing.T) {
	began, end := make(chan struct{}), make(chan struct{})
	w := newWorld(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			began <- struct{}{}
			<-end
		}
	}), func(c *gateway.Config) { c.Limits.Requests.PerAddress = 1 })
	c := w.client3()
	first := begin(t, c, "/wait")
	await.Receive(t, began, "the first request")
	for _, other := range []*http.Client{c, w.client(true)} {
		resp, _ := do(t, other, request(t, http.MethodGet, "https://"+host+"/", nil))
		assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
		assert.Equal(t, problem.ContentType, resp.Header.Get("Content-Type"))
	}
	close(end)
	require.NoError(t, await.Receive(t, first, "the first answer"))
	resp, _ := do(t, c, request(t, http.MethodConnect, "https://"+host+"/", nil))
	assert.Equal(t, http.StatusNotImplemented, resp.StatusCode)
	resp, _ = do(t, c, request(t, http.MethodGet, "https://"+host+"/", nil, "Long", strings.Repeat("a", 65<<10)))
	assert.Equal(t, http.StatusRequestHeaderFieldsTooLarge, resp.StatusCode)

	for range perPeer - 1 {
		conn, err := w.dialQUIC(t.Context())
		require.NoError(t, err)
		defer func() { _ = conn.CloseWithError(0, "") }()
	}
	_, err := w.dialQUIC(t.Context())
	require.ErrorContains(t, err, "CONNECTION_REFUSED")
	assert.Equal(t, perPeer, w.limited.Stats().Open)
}

// TestHTTP3_ClosesIdle includes connections with a stream whose header never comes.
func TestHTTP3_ClosesIdle(t *testing.T) {
	w := newWorld(t, http.NotFoundHandler(), func(c *gateway.Config) { c.Patience.Header, c.Patience.Idle = time.Second, time.Second })
	var silent, slow *quic.Conn
	await.Until(t, "two connections are there", func() bool { // a handshake may take too long
		ctx, cancel := context.WithTimeout(t.Context(), attempt)
		defer cancel()
		var err error
		if silent == nil {
			silent, err = w.dialQUIC(ctx)
		}
		if err == nil {
			slow, err = w.dialQUIC(ctx)
		}
		return err == nil
	})
	if stream, err := slow.OpenStream(); err == nil {
		_, _ = stream.Write([]byte{1, 60, 0}) // the begin of a header of 60 bytes
	}
	w.served(w.client3())
	for _, conn := range []*quic.Conn{silent, slow} {
		await.Until(t, "a connection has ended", func() bool { return conn.Context().Err() != nil })
	}
	await.Until(t, "none is counted", func() bool { return w.limited.Stats().Open == 0 })
}

func TestHTTP3_DrainsRequests(t *testing.T) {
	began, end := make(chan struct{}), make(chan struct{})
	w := newWorld(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		began <- struct{}{}
		<-end
		_, _ = io.WriteString(w, "done")
	}))
	packets, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	require.NoError(t, err)
	w.packets = packets.LocalAddr()
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- w.gateway.ServeHTTP3(ctx, packets, w.limited.Enter) }()
	got := make(chan string, 1)
	go func() {
		resp, err := w.client3().Do(request(t, http.MethodGet, "https://"+host+"/", nil))
		if err != nil {
			got <- err.Error()
			return
		}
		defer func() { _ = resp.Body.Close() }()
		text, _ := io.ReadAll(resp.Body)
		got <- string(text)
	}()
	await.Receive(t, began, "the request")
	stop()
	await.Until(t, "no new connection is accepted", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // there is no answer
		defer cancel()
		conn, err := w.dialQUIC(ctx)
		if err == nil {
			_ = conn.CloseWithError(0, "")
		}
		return err != nil
	})
	close(end)
	assert.Equal(t, "done", await.Receive(t, got, "the answer"))
	require.NoError(t, await.Receive(t, stopped, "the end"))
}
