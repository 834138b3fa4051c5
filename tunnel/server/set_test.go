package server_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/faultproxy"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/tunneltest"
	"github.com/pipeops/pipeops-vm-agent/tunnel/server"
)

// newPlanes are n servers of one CA.
func newPlanes(t testing.TB, n int) []*plane {
	t.Helper()
	ca := tunneltest.NewCA(t)
	planes := make([]*plane, n)
	for i := range planes {
		planes[i] = startPlane(t, ca, "127.0.0.1:0")
	}
	return planes
}

func (p *plane) endpoint() tunnel.Endpoint { return at(p.addr) }

func at(address string) tunnel.Endpoint {
	return tunnel.Endpoint{Address: address, ServerName: tunneltest.ServerName}
}

func endpoints(planes ...*plane) (all []tunnel.Endpoint) {
	for _, p := range planes {
		all = append(all, p.endpoint())
	}
	return all
}

// set is an agent with a Set.
type set struct {
	*tunnel.Set
	t        testing.TB
	fallback tunnel.Endpoint
	stop     func()
}

// newSet runs a Set of agent a1 whose fallback is p, with an HTTP server behind it.
func newSet(p *plane, change ...func(*tunnel.SetConfig)) *set {
	p.t.Helper()
	certificate := p.ca.Agent("a1")
	cfg := tunnel.SetConfig{
		Config: tunnel.Config{
			ServerAddress: p.addr, ServerName: tunneltest.ServerName, AgentID: "a1", Instance: "one",
			TLS:     func(context.Context) (*tls.Config, error) { return certificate, nil },
			Backoff: tunnel.Backoff{Initial: 20 * time.Millisecond, Max: 100 * time.Millisecond},
			Log:     testLog(),
		},
		RefusedPause: 50 * time.Millisecond, FallbackAfter: 200 * time.Millisecond, Leave: 500 * time.Millisecond,
	}
	for _, f := range change {
		f(&cfg)
	}
	s, err := tunnel.NewSet(cfg)
	require.NoError(p.t, err)
	serve(p.t, s.Listener(), echo{"one"})
	return &set{Set: s, t: p.t, fallback: at(cfg.ServerAddress), stop: await.Background(p.t, "the Set", s.Run)}
}

// told has the Set keep these, as a heartbeat would.
func (s *set) told(all ...tunnel.Endpoint) {
	s.t.Helper()
	_, err := s.Keep(all, s.fallback)
	require.NoError(s.t, err)
}

// await waits until what the Set says of itself is so.
func (s *set) await(what string, is func(tunnel.SetStatus) bool) {
	s.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		changed := s.Changed()
		status := s.Status()
		if is(status) {
			return
		}
		select {
		case <-changed:
		case <-deadline.C:
			s.t.Fatalf("%s: %+v", what, status)
		}
	}
}

// awaitAt waits until the Set is connected to these and to no others, by both ends' accounts.
func (s *set) awaitAt(all []*plane, at ...*plane) {
	s.t.Helper()
	s.await("the tunnels are the right ones", func(status tunnel.SetStatus) bool {
		for _, n := range status.Nodes {
			if n.Phase != tunnel.Connected || !slices.ContainsFunc(at, func(p *plane) bool { return p.addr == n.Address }) {
				return false
			}
		}
		return len(status.Nodes) == len(at)
	})
	for _, p := range all {
		await.Until(s.t, "the servers agree", func() bool {
			is := slices.Contains(at, p)
			return p.Connected("a1") == is && strings.HasSuffix(p.told(), "up a1") == is
		})
	}
}

func TestSet_KeepsFirstTwo(t *testing.T) {
	p := newPlanes(t, 5)
	s := newSet(p[0])
	s.awaitAt(p, p[0])
	s.told(p[0].endpoint(), p[0].endpoint(), p[1].endpoint(), p[2].endpoint(), p[3].endpoint())
	s.awaitAt(p, p[0], p[1])
	for _, i := range []int{0, 1} {
		mustAsk(t, p[i].client("a1", http1), "over either")
	}
	s.told(endpoints(p[1], p[4])...)
	s.awaitAt(p, p[1], p[4])
	told := p[1].told()
	assert.Equal(t, "up a1", told, "the node that stays was told")
	s.told()
	s.awaitAt(p, p[0])
	assert.Equal(t, 1, s.Status().Returns)
}

// Names two nodes of which the first does not answer, and then does.
func TestSet_ConnectsBeforeLeaving(t *testing.T) {
	p := newPlanes(t, 4)
	wire := faultproxy.New(t, p[2].addr)
	s := newSet(p[0])
	s.told(endpoints(p[0], p[1])...)
	s.awaitAt(p, p[0], p[1])
	wire.Set(faultproxy.Silent)
	s.told(at(wire.Addr()), p[3].endpoint())
	s.await("one old tunnel is left, the other is not", func(status tunnel.SetStatus) bool {
		up, wanted := status.Up()
		return up == 2 && wanted == 2 && len(status.Nodes) == 3
	})
	await.Until(t, "both ends agree", func() bool { return p[3].Connected("a1") && p[0].Connected("a1") != p[1].Connected("a1") })
	wire.Set(faultproxy.Condition{})
	await.Until(t, "the new one is there, and no old one", func() bool {
		return p[2].Connected("a1") && p[3].Connected("a1") && !p[0].Connected("a1") && !p[1].Connected("a1")
	})
	assert.Equal(t, 1, s.Status().Returns)
}

// A request is in progress over a tunnel that is left.
func TestSet_KeepsRequestWhileLeaving(t *testing.T) {
	p := newPlanes(t, 2)
	s := newSet(p[0], func(c *tunnel.SetConfig) { c.Leave = patience })
	s.awaitAt(p, p[0])
	conn, err := p[0].Dial(t.Context(), "a1")
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	s.told(p[1].endpoint())
	s.awaitAt(p, p[1])
	_, err = p[0].Dial(t.Context(), "a1")
	assert.ErrorIs(t, err, server.ErrNotConnected, "a new connection over the tunnel that is left")
	_, err = conn.Write([]byte("GET / HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n"))
	require.NoError(t, err)
	answer := make([]byte, 12)
	if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != "HTTP/1.1 200" {
		t.Errorf("%q, %v", answer, err)
	}
	s.told(p[0].endpoint()) // it is wanted again while it is being left
	s.awaitAt(p, p[0])
}

// Starts with nodes that are gone, and with ones that accept and are silent.
func TestSet_FallsBackOnStaleList(t *testing.T) {
	p := newPlanes(t, 3)
	p[1].stop()
	wire := faultproxy.New(t, p[2].addr)
	wire.Set(faultproxy.Silent)
	s := newSet(p[0], func(c *tunnel.SetConfig) { c.FallbackAfter = time.Second })
	s.told(p[1].endpoint(), at(wire.Addr()))
	s.await("the fallback is there", func(status tunnel.SetStatus) bool {
		up, wanted := status.Up()
		return up == 1 && wanted == 2 && status.Phase == tunnel.Connected
	})
	mustAsk(t, p[0].client("a1", http1), "over the fallback")
	wire.Set(faultproxy.Condition{})
	s.await("a node is back", func(status tunnel.SetStatus) bool {
		return slices.ContainsFunc(status.Nodes, func(n tunnel.NodeStatus) bool { return n.Address == wire.Addr() && n.Phase == tunnel.Connected })
	})
}

func TestSet_SkipsInvalidEndpoint(t *testing.T) {
	p := newPlanes(t, 3)
	s := newSet(p[0])
	s.told(endpoints(p[0], p[1])...)
	s.awaitAt(p, p[0], p[1])
	for _, test := range []struct {
		told []tunnel.Endpoint
		want []*plane
	}{
		{[]tunnel.Endpoint{at("nowhere"), at("http://evil.test/:80")}, p[:2]},
		{[]tunnel.Endpoint{at("nowhere"), p[1].endpoint(), at(":0"), p[2].endpoint()}, p[1:]},
	} {
		kept, err := s.Keep(test.told, s.fallback)
		require.Error(t, err)
		assert.ErrorContains(t, err, `"nowhere"`, "the error does not name it")
		assert.Equal(t, endpoints(test.want...), kept)
		s.awaitAt(p, test.want...)
	}
}

// One node refuses the agent for good, and takes it back.
func TestSet_RefusedAtOneNode(t *testing.T) {
	p := newPlanes(t, 2)
	var mu sync.Mutex
	refused := map[string]int{}
	s := newSet(p[0], func(c *tunnel.SetConfig) {
		c.RefusedPause = patience
		c.Refused = func(at tunnel.Endpoint, err error) {
			mu.Lock()
			defer mu.Unlock()
			assert.True(t, tunnel.IsFinal(err), "refused by %v", err)
			refused[at.Address]++
		}
	})
	s.told(endpoints(p...)...)
	s.awaitAt(p, p...)
	p[1].revoke("a1", server.ErrRevoked)
	p[1].Disconnect("a1")
	s.await("it is refused", func(status tunnel.SetStatus) bool {
		up, wanted := status.Up()
		return status.Nodes[1].Phase == tunnel.Refused && up == 1 && wanted == 2
	})
	mustAsk(t, p[0].client("a1", http1), "over the other")
	p[1].revoke("a1", nil)
	s.Retry() // sooner than the pause
	s.awaitAt(p, p...)
	mu.Lock()
	defer mu.Unlock()
	assert.True(t, len(refused) == 1 && refused[p[1].addr] == 1, "refused: %v", refused)
	told := p[0].told()
	assert.Equal(t, "up a1", told, "the other node was told")
}

func TestSet_Drain(t *testing.T) {
	p := newPlanes(t, 3)
	s := newSet(p[0])
	s.told(endpoints(p[:2]...)...)
	s.awaitAt(p, p[:2]...)
	require.NoError(t, s.Drain(t.Context()))
	for _, node := range p[:2] {
		_, err := node.Dial(t.Context(), "a1")
		assert.ErrorIs(t, err, server.ErrNotConnected, "dial of an agent that drains")
	}
	s.told(p[2].endpoint())
	s.stop()
	told := p[2].told()
	assert.Empty(t, told, "a node that was named while the agent drains was told")
}

// The nodes change hundreds of times, often before the change before is through.
func TestSet_FlappingLeaksNothing(t *testing.T) {
	count := labelled(t)
	p := newPlanes(t, 4)
	s := newSet(p[0], func(c *tunnel.SetConfig) { c.Leave = 50 * time.Millisecond })
	s.told(endpoints(p[:2]...)...)
	s.awaitAt(p, p[:2]...)
	// One connection at a time, which is made wherever there is a tunnel.
	asking, stop := context.WithCancel(t.Context())
	asked := make(chan int, 1)
	go func() {
		n := 0
		for ; asking.Err() == nil; n++ {
			if err := reach(asking, p); err != nil && asking.Err() == nil {
				t.Errorf("after %d requests: %v", n, err)
				break
			}
		}
		asked <- n
	}()
	before := count()
	nowhere := at("127.0.0.1:1")
	for i := range 400 {
		lists := [][]tunnel.Endpoint{endpoints(p[2:]...), endpoints(p[:2]...), {p[1].endpoint(), nowhere}, nil}
		if i%20 == 0 {
			s.told(endpoints(p[i/20%4], p[(i/20+1)%4])...)
			s.awaitAt(p, p[i/20%4], p[(i/20+1)%4])
		} else {
			s.told(lists[i%len(lists)]...)
		}
		require.LessOrEqual(t, len(s.Status().Nodes), 2*tunnel.SetSize+1)
	}
	s.told(endpoints(p[:2]...)...)
	s.awaitAt(p, p[:2]...)
	stop()
	t.Logf("%d requests during the changes", await.Receive(t, asked, "the end of asking"))
	assert.Equal(t, 1, s.Status().Returns)
	// frps keeps up to ten connections of a tunnel ready once some were asked for.
	await.Until(t, "there are no more goroutines than before", func() bool { return count() <= before+30 })
}

// reach asks the agent over the first server that has a tunnel to it. A tunnel that is
// left in the very moment costs another try, as it costs a Runner.
func reach(ctx context.Context, planes []*plane) (err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for ctx.Err() == nil {
		for _, p := range planes {
			var conn net.Conn
			if conn, err = p.Dial(ctx, "a1"); err != nil {
				continue
			}
			_ = conn.SetDeadline(time.Now().Add(patience))
			_, err = conn.Write([]byte("GET / HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n"))
			if err == nil {
				_, err = conn.Read(make([]byte, 1))
			}
			if closed := conn.Close(); err == nil && closed == nil {
				return nil
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Millisecond):
		}
	}
	return errors.Join(ctx.Err(), err)
}
