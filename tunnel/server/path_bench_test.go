package server_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/tunneltest"
)

// The benchmarks of the Runner's way: mutual TLS that ends in the agent, through
// Handover and the tunnel, beside the same over a direct connection. Each iteration takes one
// sample of both in turn, and the medians of the ratios are reported:
//
//	go test ./tunnel/server -run '^$' -bench Path -benchtime 9x
const (
	sample   = 200 * time.Millisecond
	bulkSize = 64 << 20
)

// cpuTime is what this process has used; it tells more than the clock where others work too.
var cpuTime = func() time.Duration { return 0 }

// BenchmarkPathRequests asks for 1 KiB over kept connections.
func BenchmarkPathRequests(b *testing.B) {
	for _, protocol := range []string{"http1", "http2"} {
		for _, clients := range []int{1, 50, 200} {
			b.Run(fmt.Sprintf("%s/%d", protocol, clients), func(b *testing.B) {
				w := newWays(b, protocol, 0)
				var rps, p50, p99, cpu []float64
				for b.Loop() {
					began := cpuTime()
					direct := load(b, w.direct, clients, sample)
					between := cpuTime()
					through := load(b, w.tunnel, clients, sample)
					perCall := (cpuTime() - between).Seconds() / float64(len(through))
					cpu = append(cpu, perCall*float64(len(direct))/(between-began).Seconds())
					rps = append(rps, float64(len(through))/float64(len(direct)))
					p50 = append(p50, quantile(through, .5)/quantile(direct, .5))
					p99 = append(p99, quantile(through, .99)/quantile(direct, .99))
				}
				report(b, map[string][]float64{"x-rps": rps, "x-p50": p50, "x-p99": p99, "x-cpu": cpu})
			})
		}
	}
}

// BenchmarkPathBulk moves a large body each way.
func BenchmarkPathBulk(b *testing.B) {
	for _, protocol := range []string{"http1", "http2"} {
		b.Run(protocol, func(b *testing.B) {
			w := newWays(b, protocol, 0)
			var ratios, cpus [2][]float64
			for b.Loop() {
				for way, up := range []bool{false, true} {
					began := cpuTime()
					direct := w.direct.bulk(b, up)
					between := cpuTime()
					through := w.tunnel.bulk(b, up)
					ratios[way] = append(ratios[way], direct.Seconds()/through.Seconds())
					cpus[way] = append(cpus[way], (cpuTime()-between).Seconds()/(between-began).Seconds())
				}
			}
			report(b, map[string][]float64{"x-down": ratios[0], "x-up": ratios[1], "x-cpu-down": cpus[0], "x-cpu-up": cpus[1]})
		})
	}
}

// BenchmarkPathFar does so over 40 ms round trip between the agent and the control plane.
func BenchmarkPathFar(b *testing.B) {
	for _, protocol := range []string{"http1", "http2"} {
		b.Run(protocol, func(b *testing.B) {
			w := newWays(b, protocol, 20*time.Millisecond)
			var down, up []float64
			for b.Loop() {
				for range 4 {
					w.tunnel.bulk(b, false) // as a connection that is in use
					w.tunnel.bulk(b, true)
				}
				down = append(down, bulkSize/1e6/w.tunnel.bulk(b, false).Seconds())
				up = append(up, bulkSize/1e6/w.tunnel.bulk(b, true).Seconds())
			}
			report(b, map[string][]float64{"MB/s-down": down, "MB/s-up": up})
		})
	}
}

// BenchmarkPathNeighbour is what one reader at full speed, or one that stops reading, does to
// the latency of 50 others.
func BenchmarkPathNeighbour(b *testing.B) {
	for _, kind := range []string{"greedy", "stalled"} {
		b.Run(kind, func(b *testing.B) {
			w := newWays(b, "http1", 0)
			var direct, through, ratio []float64
			for b.Loop() {
				d, t := w.direct.disturbed(b, kind), w.tunnel.disturbed(b, kind)
				direct, through, ratio = append(direct, d), append(through, t), append(ratio, t/d)
			}
			report(b, map[string][]float64{"x-direct": direct, "x-tunnel": through, "x-ratio": ratio})
		})
	}
}

// ways are clients of one agent, over a direct connection and through the tunnel.
type ways struct{ direct, tunnel *way }

type way struct {
	*http.Client
	other *http.Client // with connections of its own
}

func newWays(b *testing.B, protocol string, oneWay time.Duration) ways {
	b.Helper()
	p := newPlane(b)
	at := p.addr
	if oneWay > 0 {
		at = tunneltest.NewDelay(b, at, oneWay)
	}
	a := p.bareAgent("a1", func(c *tunnel.Config) { c.ServerAddress = at })
	edge, far := listen(b), listen(b)
	serveBench(b, p, a.Listener())
	serveBench(b, p, far)
	benchEdge(b, p, edge)
	a.waitFor(b, tunnel.Connected)
	await.Until(b, "the agent is online", func() bool { return p.Connected("a1") })
	make := func(at net.Listener) *way {
		return &way{benchClient(b, p, protocol, at.Addr().String()), benchClient(b, p, protocol, at.Addr().String())}
	}
	return ways{direct: make(far), tunnel: make(edge)}
}

func listen(b *testing.B) net.Listener {
	b.Helper()
	ln, err := new(net.ListenConfig).Listen(b.Context(), "tcp", "127.0.0.1:0")
	require.NoError(b, err)
	return ln
}

// serveBench is the agent's end: mutual TLS, and bodies either way.
func serveBench(b *testing.B, p *plane, ln net.Listener) {
	cfg := p.ca.Server()
	cfg.ClientAuth = tls.RequireAndVerifyClientCert
	cfg.NextProtos = []string{"h2", "http/1.1"}
	srv := &http.Server{
		TLSConfig: cfg, ReadHeaderTimeout: patience, HTTP2: benchWindows(),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				_, _ = io.Copy(io.Discard, r.Body)
				return
			}
			left, _ := strconv.Atoi(r.URL.Query().Get("n"))
			w.Header().Set("Content-Length", strconv.Itoa(left))
			chunk := make([]byte, min(left, 32<<10))
			for left > 0 {
				n, err := w.Write(chunk[:min(left, len(chunk))])
				if left -= n; err != nil {
					return
				}
			}
		}),
	}
	served := make(chan error, 1)
	go func() { served <- srv.ServeTLS(ln, "", "") }()
	b.Cleanup(func() { _ = srv.Close(); <-served })
}

// benchEdge hands what comes over, as the edge does when it has read the name.
func benchEdge(b *testing.B, p *plane, ln net.Listener) {
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				if err := p.Handover(context.Background(), "a1", conn); err != nil {
					b.Error(err)
					_ = conn.Close()
				}
			})
		}
	})
	b.Cleanup(func() { _ = ln.Close(); all.Wait() })
}

func benchWindows() *http.HTTP2Config {
	return &http.HTTP2Config{MaxReceiveBufferPerConnection: 64 << 20, MaxReceiveBufferPerStream: 16 << 20, MaxConcurrentStreams: 250}
}

func benchClient(b *testing.B, p *plane, protocol, address string) *http.Client {
	cfg := p.ca.Agent("runner")
	cfg.ServerName = tunneltest.ServerName
	transport := &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		},
		TLSClientConfig: cfg, MaxIdleConnsPerHost: 256, HTTP2: benchWindows(), Protocols: new(http.Protocols),
	}
	transport.Protocols.SetHTTP1(protocol == "http1")
	transport.Protocols.SetHTTP2(protocol == "http2")
	b.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// get reads n bytes and forgets them.
func (w *way) get(ctx context.Context, n int64) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://agent/?n=%d", n), nil)
	if err != nil {
		return err
	}
	resp, err := w.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

func (w *way) bulk(b *testing.B, up bool) time.Duration {
	b.Helper()
	started := time.Now()
	if !up {
		require.NoError(b, w.get(b.Context(), bulkSize))
		return time.Since(started)
	}
	req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, "https://agent/", io.LimitReader(zeros{}, bulkSize))
	require.NoError(b, err)
	req.ContentLength = bulkSize
	resp, err := w.Do(req)
	require.NoError(b, err)
	_ = resp.Body.Close()
	return time.Since(started)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// load is the sorted latencies of clients that ask one after another.
func load(b *testing.B, w *way, clients int, d time.Duration) []time.Duration {
	b.Helper()
	var (
		mu  sync.Mutex
		all []time.Duration
		wg  sync.WaitGroup
	)
	var ready sync.WaitGroup
	ready.Add(clients)
	for range clients {
		wg.Go(func() {
			err := w.get(b.Context(), 1<<10) // makes the connections
			ready.Done()
			ready.Wait()
			var mine []time.Duration
			for end := time.Now().Add(d); err == nil && time.Now().Before(end); {
				started := time.Now()
				err = w.get(b.Context(), 1<<10)
				mine = append(mine, time.Since(started))
			}
			assert.NoError(b, err)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, mine...)
		})
	}
	wg.Wait()
	slices.Sort(all)
	return all
}

// disturbed is how much longer the slowest of 50 clients' calls take beside such a neighbour.
func (w *way) disturbed(b *testing.B, kind string) float64 {
	b.Helper()
	load(b, w, 50, sample/5)
	alone := quantile(load(b, w, 50, 2*sample), .99)
	ctx, stop := context.WithCancel(b.Context())
	var wg sync.WaitGroup
	neighbour := &way{Client: w.other}
	if kind == "greedy" {
		wg.Go(func() { _ = neighbour.get(ctx, 1<<50) })
	} else {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://agent/?n=1000000000000", nil)
		require.NoError(b, err)
		resp, err := w.other.Do(req)
		require.NoError(b, err)
		defer func() { _ = resp.Body.Close() }()
	}
	load(b, w, 50, sample/5) // until it is under way
	beside := quantile(load(b, w, 50, 2*sample), .99)
	stop()
	wg.Wait()
	return beside / alone
}

func quantile(sorted []time.Duration, q float64) float64 {
	return float64(sorted[min(len(sorted)-1, int(q*float64(len(sorted))))])
}

func report(b *testing.B, figures map[string][]float64) {
	for unit, values := range figures {
		slices.Sort(values)
		b.ReportMetric(values[len(values)/2], unit)
	}
	b.ReportMetric(0, "ns/op") // says nothing here
}
