package client_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
	"github.com/pipeops/pipeops-vm-agent/test/problemtest"
	"github.com/pipeops/pipeops-vm-agent/test/proxytest"
)

// node is a way to an agent that can be cut, or made to hang.
type node struct {
	address string
	t       *testing.T
	target  string

	mu       sync.Mutex
	accepted int
	hangs    bool
	open     map[net.Conn]bool
	answered func(n int64) bool // called with what came from the agent; true cuts all
	ln       net.Listener
	all      sync.WaitGroup
}

func newNode(t *testing.T, target string) *node {
	t.Helper()
	return newNodeAt(t, target, "127.0.0.1:0")
}

func newNodeAt(t *testing.T, target, address string) *node {
	t.Helper()
	n := &node{address: address, t: t, target: target, open: map[net.Conn]bool{}}
	n.start()
	t.Cleanup(func() { n.cut(); n.all.Wait() })
	return n
}

func (n *node) start() {
	ln, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", n.address)
	require.NoError(n.t, err)
	n.mu.Lock()
	n.address, n.ln = ln.Addr().String(), ln
	n.mu.Unlock()
	n.all.Go(func() {
		for {
			near, err := ln.Accept()
			if err != nil {
				return
			}
			n.mu.Lock()
			n.accepted++
			n.open[near] = true
			hangs := n.hangs
			n.mu.Unlock()
			if hangs {
				continue
			}
			far, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", n.target)
			if err != nil {
				_ = near.Close()
				continue
			}
			n.mu.Lock()
			n.open[far] = true
			n.mu.Unlock()
			n.all.Go(func() { n.copy(far, near, false) })
			n.all.Go(func() { n.copy(near, far, true) })
		}
	})
}

func (n *node) copy(to, from net.Conn, answer bool) {
	b := make([]byte, 32<<10)
	for {
		read, err := from.Read(b)
		n.mu.Lock()
		answered := n.answered
		n.mu.Unlock()
		if answer && answered != nil && read > 0 && answered(int64(read)) {
			n.cut()
			return
		}
		if _, failed := to.Write(b[:read]); err != nil || failed != nil {
			_, _ = to.Close(), from.Close()
			return
		}
	}
}

// cut ends it: nobody is let in, and all connections break.
func (n *node) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	_ = n.ln.Close()
	for conn := range n.open {
		_ = conn.Close()
		delete(n.open, conn)
	}
}

func (n *node) hang() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hangs = true
}

func (n *node) connections() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.accepted
}

// through is a client that gets to the agent by these nodes, and asks one at a time.
func through(t *testing.T, agent *runnertest.Agent, nodes ...*node) *client.Client {
	t.Helper()
	return client.DialingOneAtATime(agent.ClientWith(func(c *client.Config) {
		c.EdgeAddresses, c.Patience = nil, time.Minute
		for _, n := range nodes {
			c.EdgeAddresses = append(c.EdgeAddresses, n.address)
		}
	}))
}

func TestClient_SpreadsOverEdges(t *testing.T) {
	agent := runnertest.Start(t, runnertest.NewBackend())
	one, two := newNode(t, agent.Address), newNode(t, agent.Address)
	first := 0 // clients that are by the first
	for range 24 {
		atOne, atTwo := one.connections(), two.connections()
		c := through(t, agent, one, two)
		for range 3 {
			_, err := c.Cluster().Get(ctxFor(t))
			require.NoError(t, err)
		}
		c.Close()
		// Not how many: net/http dials once more where a call begins before the connection
		// of the one before is among the idle ones.
		byOne, byTwo := one.connections() > atOne, two.connections() > atTwo
		require.True(t, byOne != byTwo, "a client stays where it is")
		if byOne {
			first++
		}
	}
	// That one of two gets fewer than 2 of 24 happens once in 300 000 runs.
	assert.Greater(t, first, 1)
	assert.Less(t, first, 23)
}

// A frozen node takes connections and is silent. It does not hold up the other node for a
// handshake's time, and is not tried again.
func TestClient_HangingDial(t *testing.T) {
	agent := runnertest.Start(t, runnertest.NewBackend())
	hanging, well := newNode(t, agent.Address), newNode(t, agent.Address)
	hanging.hang()
	c := client.PatientHandshakes(client.BeginningAt(through(t, agent, hanging, well), 0))
	client.DialingTheNextAfter(c, 10*time.Millisecond)
	_, err := c.Cluster().Get(ctxFor(t))
	require.NoError(t, err)
	client.DialingOneAtATime(c).Close()
	var mu sync.Mutex
	var dialed []string
	_, err = c.Cluster().Get(httptrace.WithClientTrace(ctxFor(t), &httptrace.ClientTrace{ConnectStart: func(_, address string) {
		mu.Lock()
		defer mu.Unlock()
		dialed = append(dialed, address)
	}}))
	require.NoError(t, err)
	mu.Lock()
	assert.NotContains(t, dialed, hanging.address, "what worked is preferred")
	mu.Unlock()
}

// TestClient_ThroughProxy has an edge that nothing but the proxy reaches.
func TestClient_ThroughProxy(t *testing.T) {
	const edge = "edge.invalid:8444"
	agent := runnertest.Start(t, runnertest.NewBackend())
	via := proxytest.Start(t, proxytest.Config{Host: "127.0.0.1", Account: "me:secret", Sites: map[string]string{edge: agent.Address}})
	behind := func(proxy string) *client.Client {
		t.Setenv("HTTPS_PROXY", proxy)
		return agent.ClientWith(func(c *client.Config) { c.EdgeAddresses, c.Patience = []string{edge}, time.Minute })
	}
	c := behind(via.URL("me:secret"))
	_, err := c.Apps().Deploy(ctxFor(t), web, runnerapi.AppSpec{Image: "shop/web:1"}, runnerapi.WriteOptions{})
	require.NoError(t, err)
	code, err := c.Apps().Exec(ctxFor(t), web, runnerapi.ExecOptions{Command: []string{"exit", "3"}}, runnerapi.ExecStreams{})
	require.NoError(t, err)
	assert.Equal(t, 3, code)
	assert.Equal(t, []string{edge}, via.Asked())

	_, err = behind(via.URL("me:canary")).Cluster().Get(ctxFor(t)) // without the minute of patience
	refused, ok := errors.AsType[*runnerapi.Error](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, client.CodeUnreachable, refused.Code)
	assert.Contains(t, refused.Detail, "the proxy http://me:xxxxx@"+via.Address()+" in HTTPS_PROXY: it does not accept the password of the user \"me\"")
	assert.Contains(t, refused.Fix, "HTTPS_PROXY")
	t.Setenv("NO_PROXY", "edge.invalid")
	direct := agent.ClientWith(func(c *client.Config) { c.EdgeAddresses, c.Patience = []string{edge}, time.Millisecond })
	_, err = direct.Cluster().Get(ctxFor(t))
	assert.ErrorContains(t, err, "lookup edge.invalid")
}

// Calls, streams and WebSockets work over [::1].
func TestClient_IPv6Edge(t *testing.T) {
	if ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "[::1]:0"); err != nil {
		t.Skipf("this machine has no IPv6: %v", err)
	} else {
		require.NoError(t, ln.Close())
	}
	agent := runnertest.Start(t, runnertest.NewBackend())
	n := newNodeAt(t, agent.Address, "[::1]:0")
	require.True(t, strings.HasPrefix(n.address, "[::1]:"))
	c := through(t, agent, n)
	_, err := c.Apps().Deploy(ctxFor(t), web, runnerapi.AppSpec{Image: "shop/web:1"}, runnerapi.WriteOptions{})
	require.NoError(t, err)
	require.NoError(t, c.Apps().Logs(ctxFor(t), web, runnerapi.LogOptions{Tail: -1}, func(runnerapi.LogLine) error { return nil }))
	code, err := c.Apps().Exec(ctxFor(t), web, runnerapi.ExecOptions{Command: []string{"exit", "3"}}, runnerapi.ExecStreams{})
	require.NoError(t, err)
	assert.Equal(t, 3, code)
}

// A node dies during a read and a write: neither fails, and the write runs once.
func TestClient_NodeDiesDuringCall(t *testing.T) {
	agent := runnertest.Start(t, runnertest.NewBackend())
	_, err := agent.Client().Apps().Deploy(ctxFor(t), web, runnerapi.AppSpec{Image: "shop/web:1"}, runnerapi.WriteOptions{})
	require.NoError(t, err)
	for name, call := range map[string]func(*client.Client) error{
		"read": func(c *client.Client) error { _, err := c.Apps().Get(ctxFor(t), web); return err },
		"write": func(c *client.Client) error {
			_, err := c.Apps().Restart(ctxFor(t), web, runnerapi.WriteOptions{})
			return err
		},
		"delete": func(c *client.Client) error {
			return c.Apps().Delete(ctxFor(t), runnerapi.Key{Namespace: "production", Name: "other"}, runnerapi.WriteOptions{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := agent.Client().Apps().Deploy(ctxFor(t), runnerapi.Key{Namespace: "production", Name: "other"}, runnerapi.AppSpec{Image: "a"}, runnerapi.WriteOptions{})
			require.NoError(t, err)
			one, two := newNode(t, agent.Address), newNode(t, agent.Address)
			c := through(t, agent, one, two)
			_, err = c.Cluster().Get(ctxFor(t)) // it is connected
			require.NoError(t, err)
			in, other := one, two
			if two.connections() > 0 {
				in, other = two, one
			}
			before := len(agent.Backend.Calls())
			in.mu.Lock()
			in.answered = func(int64) bool { return len(agent.Backend.Calls()) > before } // the answer is lost
			in.mu.Unlock()
			require.NoError(t, call(c))
			assert.Equal(t, 1, other.connections())
			if name != "read" {
				done := 0
				for _, call := range agent.Backend.Calls()[before:] {
					if call.IdempotencyKey != "" {
						done++
					}
				}
				assert.Equal(t, 1, done, "it was carried out once")
			}
		})
	}
}

// Two connections break in the middle of a large response.
func TestClient_RetriesBrokenResponse(t *testing.T) {
	agent := runnertest.Start(t, runnertest.NewBackend())
	key := runnerapi.Key{Namespace: "production", Name: "large"}
	spec := runnerapi.ConfigMapSpec{Data: map[string]string{"large": strings.Repeat("0123456789abcdef", 32<<10)}}
	_, err := agent.Client().ConfigMaps().Set(ctxFor(t), key, spec, runnerapi.WriteOptions{})
	require.NoError(t, err)
	var nodes []*node
	for range 3 {
		n, came := newNode(t, agent.Address), int64(0)
		if len(nodes) < 2 {
			n.answered = func(more int64) bool { came += more; return came > 200<<10 }
		}
		nodes = append(nodes, n)
	}
	got, err := client.BeginningAt(through(t, agent, nodes...), 0).ConfigMaps().Get(ctxFor(t), key)
	require.NoError(t, err)
	assert.Equal(t, spec.Data, got.Data)
	assert.Equal(t, 1, nodes[1].connections())
}

// The edge is avoided for a while, and is tried again if no other is left.
func TestClient_AvoidsFailedEdge(t *testing.T) {
	agent := runnertest.Start(t, runnertest.NewBackend())
	one, two := newNode(t, agent.Address), newNode(t, agent.Address)
	c := through(t, agent, one, two)
	ask := func() {
		t.Helper()
		_, err := c.Cluster().Get(ctxFor(t))
		require.NoError(t, err)
	}
	ask()
	in, other := one, two
	if two.connections() > 0 {
		in, other = two, one
	}
	in.cut()
	ask()
	in.start()
	c.Close()
	ask()
	assert.Equal(t, []int{1, 2}, []int{in.connections(), other.connections()}, "it is back, and not needed")
	other.cut()
	ask()
	assert.Greater(t, in.connections(), 1, "nothing else is left")
}

func TestClient_ErrorNamesEdges(t *testing.T) {
	agent := runnertest.Start(t, runnertest.NewBackend())
	gone, closing := newNode(t, agent.Address), newNode(t, "127.0.0.1:1") // the edge knows no tunnel, and closes
	gone.cut()
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	c := agent.ClientWith(func(c *client.Config) {
		c.EdgeAddresses, c.Patience = []string{gone.address, closing.address, plain.Listener.Addr().String()}, 500*time.Millisecond
	})
	_, err := c.Cluster().Get(ctxFor(t))
	require.Equal(t, client.CodeUnreachable, codeOf(t, err))
	assert.Contains(t, err.Error(), "edge "+gone.address+": ")
	assert.Contains(t, err.Error(), "connection refused")
	assert.Contains(t, err.Error(), "edge "+closing.address+": ")
	assert.Equal(t, 1, strings.Count(err.Error(), "edge "+closing.address), err.Error())
	assert.Contains(t, err.Error(), "edge "+plain.Listener.Addr().String()+": ", "it speaks no TLS")
	assert.NotContains(t, err.Error(), "\n")
}

// One address is away; the other leads to an agent that refuses the certificate.
func TestClient_ReturnsRefusalOfAnyEdge(t *testing.T) {
	agent := runnertest.Start(t, runnertest.NewBackend())
	gone := newNode(t, agent.Address)
	gone.cut()
	stranger := runnertest.NewCA(t).Issue(t, credentials.RunnerURI(runnertest.TrustDomain, runnertest.RunnerName))
	for i := range 4 {
		c := agent.ClientWith(func(c *client.Config) {
			c.EdgeAddresses = []string{gone.address, agent.Address}
			c.Certificate = func() (*tls.Certificate, error) { return &stranger, nil }
		})
		_, err := c.Cluster().Get(ctxFor(t))
		assert.Equal(t, client.CodeRefused, codeOf(t, err), fmt.Sprint(i))
	}
}

var web = runnerapi.Key{Namespace: "production", Name: "web"}

func ctxFor(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

var codeOf = problemtest.CodeOf
