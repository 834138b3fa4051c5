package hostile_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/pipeops/pipeops-vm-agent/agent/identity"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/transport"
	"github.com/pipeops/pipeops-vm-agent/test/hostile"
	"github.com/pipeops/pipeops-vm-agent/test/planetest"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
)

// attackers send at a time; many more would only wait for the two cores. They send wave by
// wave, until all connections were sent and the control plane has served leastServed calls.
const (
	attackers   = 32
	wave        = 1_000
	leastServed = 21
)

// usualConnections is how many hostile connections come unless connectionsVariable says otherwise.
// `make test-all` has 100 000 of them come.
const (
	usualConnections    = 5_000
	connectionsVariable = "PIPEOPS_TEST_HOSTILE_CONNECTIONS"
)

// connections returns how many hostile connections come.
func connections(t *testing.T) int {
	t.Helper()
	text := os.Getenv(connectionsVariable)
	if text == "" {
		return usualConnections
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, connectionsVariable)
	require.GreaterOrEqual(t, n, usualConnections, "%s: a leak could hide among fewer", connectionsVariable)
	return n
}

// Growth allowed when all is over: what pools and tables keep, and the noise of a
// process that tests itself. A connection that stayed would bring a goroutine and some
// 30 KiB. Goroutines show one connection that stayed of 500 among 5 000, of 10 000 among 100 000.
const (
	moreGoroutines = 10
	moreHeap       = 32 << 20
)

// TestControlPlane_NoGrowthUnderAttack has thousands of hostile connections come to all listeners
// of a real control plane with a real agent's tunnel, from all addresses of this machine, while an
// agent and a Runner go on working. Afterwards there are as many goroutines as before, and as much
// memory.
func TestControlPlane_NoGrowthUnderAttack(t *testing.T) {
	s := startSystem(t)
	s.heartbeat(t)
	s.command(t)
	beforeGoroutines, beforeHeap := s.measure()

	ctx, stop := context.WithCancel(t.Context())
	var served atomic.Int64
	working, kept := errgroup.WithContext(ctx)
	working.Go(func() error { return s.work(ctx, &served) })

	n, start, sent := connections(t), time.Now(), 0
	for ; (sent < n || served.Load() < leastServed) && kept.Err() == nil; sent += wave {
		s.attack(t, sent, sent+wave)
	}
	t.Logf("%d hostile connections in %s; %d calls served meanwhile; %+v", sent, time.Since(start).Round(time.Second), served.Load(), s.plane.Connections())
	stop()
	require.NoError(t, working.Wait(), "the agent and the Runner work on during the attack")

	s.heartbeat(t)
	s.command(t)
	var goroutines int
	var heap uint64
	ok := assert.Eventually(t, func() bool {
		goroutines, heap = s.measure()
		return goroutines <= beforeGoroutines+moreGoroutines && heap <= beforeHeap+moreHeap
	}, time.Minute, time.Second)
	t.Logf("goroutines %d, before %d; heap %d KiB, before %d KiB", goroutines, beforeGoroutines, heap>>10, beforeHeap>>10)
	if !ok {
		stacks := make([]byte, 1<<20)
		t.Logf("%s", stacks[:runtime.Stack(stacks, true)])
	}
}

// system is a control plane, an agent's tunnel with the Runner API behind it, and the
// two who work: that agent and a Runner.
type system struct {
	plane   *planetest.Plane
	id      *identity.Identity
	control *controlapi.Client
	runner  *client.Client
	evil    *tls.Config // a Runner's that is let in
}

func startSystem(t *testing.T) *system {
	t.Helper()
	s := &system{plane: planetest.Start(t)}
	s.id = hostile.Enrol(t, s.plane.URL(), s.plane.Token(t, administration.TokenOptions{TTL: time.Hour}), "shop")
	own := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: s.id.Roots, Certificates: []tls.Certificate{s.id.Certificate}}
	s.control = hostile.Control(t, s.plane.URL(), "shop", own)
	s.connect(t, own)
	s.heartbeat(t)
	s.plane.AwaitOnline(t, time.Time{})
	s.runner = s.dialRunner(t)
	return s
}

// connect keeps the agent's tunnel up, with the Runner API at its end.
func (s *system) connect(t *testing.T, config *tls.Config) {
	t.Helper()
	tun, err := tunnel.New(tunnel.Config{
		ServerAddress: s.id.Tunnel.Address, ServerName: s.id.Tunnel.ServerName, AgentID: s.id.AgentID,
		TLS: func(context.Context) (*tls.Config, error) { return config, nil }, Log: zerolog.Nop(), Cluster: func() string { return "shop" },
	})
	require.NoError(t, err)
	backend := runnertest.NewBackend()
	ctx, cancel := context.WithCancel(context.Background())
	var parts errgroup.Group
	parts.Go(func() error { return tun.Run(ctx) })
	parts.Go(func() error {
		return transport.Serve(ctx, tun.Listener(), transport.ServeConfig{
			Handler: server.New(runnertest.AllowAll{}, server.Config{Cluster: backend.Cluster(), TrustDomain: datadir.DefaultTrustDomain, Log: zerolog.Nop()}),
			TLS: transport.TLS(transport.TLSConfig{
				Certificate: func() (*tls.Certificate, error) { return &s.id.Certificate, nil },
				Roots:       func() *x509.CertPool { return s.id.Roots }, TrustDomain: datadir.DefaultTrustDomain,
			}),
			Drain: time.Second, Log: zerolog.Nop(),
		})
	})
	t.Cleanup(func() {
		cancel()
		if err := parts.Wait(); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("the agent: %v", err)
		}
	})
}

// dialRunner makes two Runners: one that works, and one that means ill.
func (s *system) dialRunner(t *testing.T) *client.Client {
	t.Helper()
	certificate := func(name string) tls.Certificate {
		credentials, err := s.plane.Runners.Create(t.Context(), name, time.Hour, false)
		require.NoError(t, err)
		cert, err := credentials.TLSCertificate()
		require.NoError(t, err)
		return cert
	}
	good, evil := certificate("good"), certificate("evil")
	s.evil = &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: s.id.Roots, ServerName: s.serverName(), Certificates: []tls.Certificate{evil}}
	c, err := client.New(client.Config{
		AgentID: s.id.AgentID, ServerName: s.serverName(), EdgeAddresses: []string{s.plane.Addrs().Edge.String()},
		TrustDomain: datadir.DefaultTrustDomain, Roots: s.id.Roots, Certificate: func() (*tls.Certificate, error) { return &good, nil },
	})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func (s *system) serverName() string { return s.id.AgentID + "." + datadir.DefaultAgentsDomain }

func (s *system) heartbeat(t *testing.T) {
	t.Helper()
	require.NoError(t, s.beat(t.Context()))
}

func (s *system) command(t *testing.T) {
	t.Helper()
	require.NoError(t, s.commands(t.Context()))
}

// work is what an agent and a Runner do, on connections that are kept and on new ones.
func (s *system) work(ctx context.Context, served *atomic.Int64) error {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	stranger := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: s.id.Roots},
	}, Timeout: time.Minute}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		calls, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		err := errors.Join(s.beat(calls), s.commands(calls), healthy(calls, stranger, s.plane.URL()))
		cancel()
		if err != nil {
			return err
		}
		served.Add(3)
	}
}

func (s *system) beat(ctx context.Context) error {
	_, err := s.control.Heartbeat(ctx, controlapi.Heartbeat{Clock: time.Now(), AgentVersion: "1", RunnerAPIVersion: "v1"})
	return err
}

func (s *system) commands(ctx context.Context) error {
	_, err := s.runner.Cluster().Get(ctx)
	return err
}

func healthy(ctx context.Context, c *http.Client, url string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/healthz", nil)
	if err != nil {
		return err
	}
	resp, err := c.Do(r)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	if resp.StatusCode != http.StatusOK {
		err = errors.Join(err, fmt.Errorf("healthz: %s", resp.Status))
	}
	return errors.Join(err, resp.Body.Close())
}

// measure counts goroutines and the heap's bytes that are in use.
func (s *system) measure() (goroutines int, heap uint64) {
	runtime.GC() // pools are emptied by the second
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return runtime.NumGoroutine(), m.HeapAlloc
}

// attack sends the connections of these numbers. One in ten completes a TLS handshake, which is
// what takes the time; one in twenty of all is left to the server to end.
func (s *system) attack(t *testing.T, from, to int) {
	t.Helper()
	api := hostile.Target{Addr: s.plane.Addrs().API.String(), Anywhere: true, TLS: &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: s.id.Roots, ServerName: "localhost"}}
	tun := hostile.Target{Addr: s.plane.Addrs().Tunnel.String(), Anywhere: true}
	edge := hostile.Target{Addr: s.plane.Addrs().Edge.String(), Anywhere: true, TLS: s.evil}
	type shot struct {
		hostile.Target
		hostile.Attack
	}
	var quick, dear []shot
	for _, a := range hostile.TLS(s.serverName()) {
		quick = append(quick, shot{api, a}, shot{tun, a}, shot{edge, a})
	}
	for _, target := range []hostile.Target{api, edge} {
		for _, a := range append(hostile.HTTP1("/healthz"), hostile.HTTP2("/healthz", 100)...) {
			dear = append(dear, shot{target, a})
		}
	}
	var group errgroup.Group
	group.SetLimit(attackers)
	var failed atomic.Int64
	for i := from; i < to; i++ {
		at := quick[i%len(quick)]
		if i%10 == 0 {
			at = dear[(i/10)%len(dear)]
		}
		group.Go(func() error {
			conn, err := at.Send(t.Context(), at.Attack)
			if err != nil {
				failed.Add(1)
				return nil //nolint:nilerr // it was refused, which is as good
			}
			if i%20 == 1 && !at.Waits {
				_, _ = hostile.Ended(conn, time.Second)
			}
			leave(conn, i)
			return nil
		})
	}
	require.NoError(t, group.Wait())
	assert.Less(t, failed.Load(), int64((to-from)/4), "most of the attack has to arrive")
}

// leave goes without a word, or in order.
func leave(conn net.Conn, i int) {
	if i%2 == 0 {
		hostile.Reset(conn)
		return
	}
	_ = conn.Close()
}
