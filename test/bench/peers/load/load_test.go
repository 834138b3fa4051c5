package load_test

import (
	"context"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/bench/peers/load"
)

func TestPercentileIsTheNearestRank(t *testing.T) {
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(i+1))
	}
	for q, want := range map[float64]time.Duration{0: 1, 0.5: 50, 0.99: 99, 0.991: 100, 1: 100} {
		assert.Equal(t, want, load.Percentile(hundred, q), "of %g", q)
	}
	assert.Equal(t, time.Duration(7), load.Percentile([]time.Duration{7}, 0.99))
	assert.Zero(t, load.Percentile(nil, 0.5))
}

func TestMedian(t *testing.T) {
	assert.InDelta(t, 2, load.Median([]float64{3, 1, 2}), 0)
	assert.InDelta(t, 2.5, load.Median([]float64{4, 1, 2, 3}), 0)
	assert.True(t, math.IsNaN(load.Median(nil)))
}

func TestClientsAreCounted(t *testing.T) {
	var asked atomic.Int64
	handler := load.Handler()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		handler.ServeHTTP(w, r)
	}))
	defer srv.Close()
	got, err := load.RunClosed(t.Context(), srv.Client(), srv.URL+load.PathSmall, 4, 20*time.Millisecond, 100*time.Millisecond)
	require.NoError(t, err)
	assert.Equal(t, 4, got.Clients)
	assert.Positive(t, got.PerSecond)
	assert.Positive(t, got.P50)
	assert.GreaterOrEqual(t, got.P99, got.P50)
	assert.EqualValues(t, asked.Load(), got.Answered, "those before and after count, too")
}

// slow answers each request after a while.
type slow time.Duration

func (s slow) RoundTrip(*http.Request) (*http.Response, error) {
	time.Sleep(time.Duration(s)) // of the bubble
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

// TestSlowRequestsCount: each takes nearly as long as the measurement.
func TestSlowRequestsCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const took = 200 * time.Millisecond
		client := &http.Client{Transport: slow(took)}
		got, err := load.RunClosed(t.Context(), client, "http://x", 50, 100*time.Millisecond, 250*time.Millisecond)
		require.NoError(t, err)
		assert.InDelta(t, 250, got.PerSecond, 51)
		assert.Equal(t, took, got.P50)
	})
}

func TestARequestThatFailsEndsTheRun(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	defer srv.Close()
	_, err := load.RunClosed(t.Context(), srv.Client(), srv.URL, 2, 0, time.Minute)
	assert.ErrorContains(t, err, "404")
}

func TestBulkArrivesWhole(t *testing.T) {
	srv := httptest.NewServer(load.Handler())
	defer srv.Close()
	for _, way := range []load.Direction{load.Down, load.Up} {
		rate, moved, err := load.Bulk(t.Context(), srv.Client(), srv.URL, way, time.Millisecond)
		require.NoError(t, err, way)
		assert.Positive(t, rate, way)
		assert.EqualValues(t, 2*32<<20, moved, "what warms up counts, and no transfer is smaller")
	}
}

// line is a delay line to a server that answers what it is told, a connection at a time.
func line(t *testing.T, oneWay time.Duration) net.Conn {
	t.Helper()
	listen := func() net.Listener {
		ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		return ln
	}
	echo, near := listen(), listen()
	go func() {
		conn, err := echo.Accept()
		if err == nil {
			_, _ = io.Copy(conn, conn)
			_ = conn.Close()
		}
	}()
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- load.Delay{OneWay: oneWay, Target: echo.Addr().String()}.Serve(ctx, near) }()
	t.Cleanup(func() {
		_ = echo.Close()
		cancel()
		assert.NoError(t, await.Receive(t, served, "the end of Serve"))
	})
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", near.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestTheLineDelaysEachByteAndKeepsAll(t *testing.T) {
	conn := line(t, 30*time.Millisecond)
	for range 3 {
		start := time.Now()
		_, err := conn.Write([]byte("ping"))
		require.NoError(t, err)
		answer := make([]byte, 4)
		_, err = io.ReadFull(conn, answer)
		require.NoError(t, err)
		assert.Equal(t, "ping", string(answer))
		assert.GreaterOrEqual(t, time.Since(start), 60*time.Millisecond)
	}
}

func TestTheLineIsAsWideAsWhatIsSent(t *testing.T) {
	const (
		oneWay = 200 * time.Millisecond
		size   = 64 << 20
		window = 256 << 10
	)
	conn := line(t, oneWay)
	go func() {
		_, _ = io.Copy(conn, io.LimitReader(zeros{}, size))
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	start := time.Now()
	got, err := io.Copy(io.Discard, conn)
	require.NoError(t, err)
	assert.EqualValues(t, size, got, "the end comes after all bytes")
	const withWindow = size / window * 2 * oneWay // more than a minute and a half
	assert.Less(t, time.Since(start), withWindow/2)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
