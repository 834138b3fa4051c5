package server_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/faultproxy"
	"github.com/pipeops/pipeops-vm-agent/test/logbook"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/tunneltest"
	"github.com/pipeops/pipeops-vm-agent/tunnel/server"
)

func TestTunnel_ReconnectsAfterRestart(t *testing.T) {
	first := newPlane(t)
	a := first.agent("a1")
	first.stop()
	a.waitFor(t, tunnel.Waiting)
	assert.Contains(t, a.Status().LastError, first.addr, "the error does not say where")
	second := startPlane(t, first.ca, first.addr)
	a.waitFor(t, tunnel.Connected)
	await.Until(t, "online", func() bool { return second.Connected("a1") })
	mustAsk(t, second.client("a1", http1), "again")
	s := a.Status()
	assert.True(t, s.Reconnects == 1 && s.LastError == "", "status %+v", s)
	told := first.told()
	assert.Equal(t, "up a1, down a1", told, "the first server told")
}

// Replaces an agent whose connection is dead, and nobody knows yet.
func TestTunnel_Takeover(t *testing.T) {
	replaced := &logbook.Book{}
	p := newPlane(t, func(c *server.Config) { c.Log = zerolog.New(replaced) })
	wire := faultproxy.New(t, p.addr)
	p.agent("a1", func(c *tunnel.Config) { c.ServerAddress = wire.Addr() })
	wire.Set(faultproxy.Silent)
	replacement := p.agent("a1")
	mustAsk(t, p.client("a1", http1), "from the new one")
	await.Until(t, "the old session is gone", func() bool { return p.Stats().Sessions == 1 })
	await.Until(t, "it has ended because another took over", func() bool { return replaced.Count("a newer connection of the same replica took over") == 1 })
	assert.Equal(t, "up a1", p.told(), "a takeover is not news")
	assert.NoError(t, replacement.stop())
	await.Until(t, "down", func() bool { return p.told() == "up a1, down a1" })
}

func TestTunnel_NoticesHalfOpen(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for the keep-alive")
	}
	t.Parallel() // it waits most of the time
	p := newPlane(t)
	wire := faultproxy.New(t, p.addr)
	a := p.agent("a1", func(c *tunnel.Config) { c.ServerAddress = wire.Addr() })
	wire.Set(faultproxy.Silent)
	await.Until(t, "the agent notices", func() bool { return a.Status().Phase != tunnel.Connected })
	await.Until(t, "the server notices", func() bool { return !p.Connected("a1") })
	wire.Set(faultproxy.Condition{})
	a.waitFor(t, tunnel.Connected)
}

func TestRevokeAgent_StopsTunnel(t *testing.T) {
	p := newPlane(t)
	p.revoke("a1", fmt.Errorf("%w: by the operator on Monday", server.ErrRevoked))
	a := p.bareAgent("a1")
	a.waitFor(t, tunnel.Refused)
	err := a.stop()
	var explained *tunnel.Error
	require.True(t, tunnel.IsFinal(err) && errors.As(err, &explained), "Run returned %v", err)
	if !strings.Contains(err.Error(), "by the operator on Monday") || !strings.Contains(err.Error(), "new token") {
		t.Errorf("error %q", err)
	}
	assert.Empty(t, p.told())
}

func TestAuthorize_RetriesAfterError(t *testing.T) {
	p := newPlane(t)
	p.revoke("a1", errors.New("database password is hunter2"))
	a := p.bareAgent("a1")
	a.waitFor(t, tunnel.Waiting)
	got := a.Status().LastError
	assert.True(t, strings.Contains(got, "cannot check") && !strings.Contains(got, "hunter2"), "error %q", got)
	p.revoke("a1", nil)
	a.waitFor(t, tunnel.Connected)
}

func TestDisconnect_ClosesConnections(t *testing.T) {
	p := newPlane(t)
	a := p.bareAgent("a1")
	a.waitFor(t, tunnel.Connected)
	go echoConnections(a.Listener())
	t.Cleanup(func() { _ = a.Listener().Close() })
	await.Until(t, "online", func() bool { return p.Connected("a1") })
	dialled, err := p.Dial(t.Context(), "a1")
	require.NoError(t, err)
	runner, edge := net.Pipe()
	require.NoError(t, p.Handover(t.Context(), "a1", edge))

	p.revoke("a1", server.ErrRevoked)
	p.Disconnect("a1")
	for _, conn := range []net.Conn{dialled, runner} {
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("connection through the tunnel: %v", err)
		}
	}
	await.Until(t, "down", func() bool { return p.told() == "up a1, down a1" })
	a.waitFor(t, tunnel.Refused)
	_, err = p.Dial(t.Context(), "a1")
	assert.ErrorIs(t, err, server.ErrNotConnected, "dial afterwards")
}

// It is used at the next connection and drops nothing before.
func TestTunnelCertificate_Renewed(t *testing.T) {
	var mu sync.Mutex
	var serials []string
	p := newPlane(t, func(c *server.Config) {
		c.Identify = func(state tls.ConnectionState) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			serials = append(serials, state.PeerCertificates[0].SerialNumber.String())
			return tunneltest.Identify(state)
		}
	})
	current := p.ca.Agent("a1")
	a := p.agent("a1", func(c *tunnel.Config) {
		c.TLS = func(context.Context) (*tls.Config, error) {
			mu.Lock()
			defer mu.Unlock()
			return current, nil
		}
	})
	client := p.client("a1", http1)
	mustAsk(t, client, "before")
	mu.Lock()
	current = p.ca.Agent("a1")
	mu.Unlock()
	mustAsk(t, client, "after")
	require.Zero(t, a.Status().Reconnects, "reconnects for a renewal")
	p.Disconnect("a1")
	await.Until(t, "reconnected", func() bool { return a.Status().Reconnects == 1 })
	mu.Lock()
	defer mu.Unlock()
	assert.True(t, len(serials) == 2 && serials[0] != serials[1], "certificates seen: %v", serials)
}

func TestTunnel_ErrorsHaveFix(t *testing.T) {
	p := newPlane(t)
	other := tunneltest.NewCA(t)
	stranger := other.Agent("a1")
	stranger.RootCAs = p.ca.Pool()
	use := func(cfg *tls.Config) func(*tunnel.Config) {
		return func(c *tunnel.Config) {
			c.TLS = func(context.Context) (*tls.Config, error) { return cfg, nil }
		}
	}
	for name, test := range map[string]struct {
		change func(*tunnel.Config)
		want   string
	}{
		"nobody listens":      {func(c *tunnel.Config) { c.ServerAddress = "127.0.0.1:1" }, "firewall"},
		"unknown CA":          {use(other.Agent("a1")), "CA are the ones"},
		"another server":      {func(c *tunnel.Config) { c.ServerName = "other.example.test" }, "CA are the ones"},
		"expired certificate": {use(p.ca.AgentFor("a1", -time.Minute)), "clock"},
		"foreign certificate": {use(stranger), "another control plane"},
		"no certificate yet": {func(c *tunnel.Config) {
			c.TLS = func(context.Context) (*tls.Config, error) { return nil, errors.New("identity is missing") }
		}, "identity is missing"},
		"another agent's certificate": {use(p.ca.Agent("a2")), "new token"},
	} {
		t.Run(name, func(t *testing.T) {
			a := p.bareAgent("a1", test.change)
			phase := tunnel.Waiting
			if name == "another agent's certificate" {
				phase = tunnel.Refused
			}
			a.waitFor(t, phase)
			assert.Contains(t, a.Status().LastError, test.want)
		})
	}
}

// A control plane asks an agent something when it comes.
func TestOnUp_MayDial(t *testing.T) {
	var s *server.Server
	result := make(chan error, 1)
	p := newPlane(t, func(c *server.Config) {
		c.OnUp = func(id string) {
			conn, err := s.Dial(context.Background(), id)
			if err == nil {
				err = conn.Close()
			}
			result <- err
		}
	})
	s = p.Server
	p.bareAgent("a1")
	assert.NoError(t, await.Receive(t, result, "the news to have called back"))
}

// Starts and stops agents at every moment, over TCP and websockets, with connections coming in
// all the time. frp's own client panics, or stays behind as a zombie, when it is stopped at some
// of them; goleak finds what stays. TUNNEL_CYCLES sets the number of cycles, 400 by default.
func TestTunnel_StartStop(t *testing.T) {
	cycles := 400
	if v, err := strconv.Atoi(os.Getenv("TUNNEL_CYCLES")); err == nil {
		cycles = v
	}
	p := newPlane(t)
	api := p.api()
	ctx, cancel := context.WithCancel(t.Context())
	var runners, starters sync.WaitGroup
	const agents = 8
	for n := range agents {
		id := fmt.Sprintf("a%d", n)
		runners.Go(func() { p.callAgain(ctx, id) })
		starters.Go(func() {
			for i := n; i < cycles && !t.Failed(); i += agents {
				p.startAndStop(t, id, i, api)
			}
		})
	}
	starters.Wait()
	cancel()
	runners.Wait()
	await.Until(t, "no session is left", func() bool { s := p.Stats(); return s.Sessions == 0 && s.Connections == 0 && s.Dials == 0 })
	await.Until(t, "it was told of all agents that came, and that they went", func() bool {
		ups, downs := strings.Count(p.told(), "up"), strings.Count(p.told(), "down")
		return ups == downs && ups > 0
	})
	alive := p.Agents()
	assert.LessOrEqual(t, len(alive), 0, "zombies: %v", alive)
}

// callAgain connects to an agent again and again.
func (p *plane) callAgain(ctx context.Context, id string) {
	for ctx.Err() == nil {
		if conn, err := p.Dial(ctx, id); err == nil {
			_, _ = io.WriteString(conn, "x")
			_ = conn.Close()
		} else {
			time.Sleep(time.Millisecond)
		}
	}
}

// startAndStop is one short life, the i-th, which ends in one of several ways.
func (p *plane) startAndStop(t *testing.T, id string, i int, api *http.Server) {
	a := p.bareAgent(id, func(c *tunnel.Config) {
		c.Backoff.Initial = time.Millisecond
		if i/4%2 == 1 {
			p.over(api, id)(c)
			c.ServerAddress = "127.0.0.1:1"
		}
	})
	var echoing sync.WaitGroup
	echoing.Go(func() { echoConnections(a.Listener()) })
	switch i % 4 {
	case 0:
		a.waitFor(t, tunnel.Connected)
	case 1:
		a.waitFor(t, tunnel.Connected)
		p.Disconnect(id)
	}
	time.Sleep(time.Duration(rand.Int64N(int64(20 * time.Millisecond)))) // any moment
	assert.NoError(t, a.stop())
	assert.Equal(t, tunnel.Stopped, a.Status().Phase)
	_ = a.Listener().Close()
	echoing.Wait()
}

// labelled labels the goroutine of the test, and thus all that it starts from now on. The function
// that it returns counts them. Goroutines of other tests do not matter.
func labelled(t *testing.T) (count func() int) {
	t.Helper()
	pprof.SetGoroutineLabels(pprof.WithLabels(t.Context(), pprof.Labels("test", t.Name())))
	return func() (all int) {
		t.Helper()
		var profile bytes.Buffer
		require.NoError(t, pprof.Lookup("goroutine").WriteTo(&profile, 1))
		label, same := fmt.Sprintf("%q:%q", "test", t.Name()), 0
		for lines := bufio.NewScanner(&profile); lines.Scan(); {
			if n := 0; strings.HasPrefix(lines.Text(), "# labels:") {
				if strings.Contains(lines.Text(), label) {
					all += same
				}
			} else if _, err := fmt.Sscanf(lines.Text(), "%d @", &n); err == nil {
				same = n
			}
		}
		return all
	}
}

// Counts the goroutines of an idle tunnel exactly: a control plane has ten thousand, and a
// goroutine each is 40 to 80 MB of its memory.
func TestTunnel_GoroutinesAtRest(t *testing.T) {
	const (
		tunnels = 8
		// ofServer are the one that reads the session, and frps' worker and its two of the control
		// connection.
		ofServer = 4
		// ofAgent are the one that reads the session; the tunnel's own, which this test starts;
		// frpc's worker, two of the control connection, and its look at the proxy.
		ofAgent = 6
	)
	count := labelled(t)
	p := newPlane(t)
	before := count()
	atRest := func(what string, each int) {
		t.Helper()
		await.Until(t, fmt.Sprintf("%s has %d goroutines", what, each), func() bool { return count() == before+tunnels*each })
		before += tunnels * each
	}
	for i := range tunnels {
		id := fmt.Sprintf("strange-%d", i)
		a := p.attacker(t, id)
		a.register(a.login(id), id)
	}
	atRest("a tunnel whose agent is a multiplexer and no more", ofServer+1)
	for i := range tunnels {
		p.bareAgent(fmt.Sprintf("usual-%d", i)).waitFor(t, tunnel.Connected)
	}
	atRest("a tunnel with its agent", ofServer+ofAgent)
}
