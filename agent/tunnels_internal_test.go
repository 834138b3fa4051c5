package agent

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/agent/identity"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/wake"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/freeport"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
)

// issued is an identity as a control plane answers it, of its own CA.
func issued(t *testing.T) *identity.Identity {
	t.Helper()
	key, err := identity.NewKey()
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "CA and leaf"}, DNSNames: []string{"a1.agents.test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	text := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	id, err := identity.New(key, controlapi.Identity{
		AgentID: "a1", ServerName: "a1.agents.test", Certificate: text, CABundle: text, Tunnel: nodes("own.test:7000")[0],
	}, identity.Registration{})
	require.NoError(t, err)
	return id
}

func nodes(addresses ...string) (all []controlapi.TunnelEndpoint) {
	for _, a := range addresses {
		host, _, _ := strings.Cut(a, ":")
		all = append(all, controlapi.TunnelEndpoint{Address: a, ServerName: host})
	}
	return all
}

// told is an agent whose heartbeats are answered with nodes. Nothing is dialled.
type told struct {
	*tunnels
	t   *testing.T
	tun *tunnel.Set
	log bytes.Buffer
	at  time.Time
}

func newTold(t *testing.T, id *identity.Identity) *told {
	t.Helper()
	a := &told{t: t, at: time.Now()}
	log, now, health := zerolog.New(&a.log), func() time.Time { return a.at }, newHealth()
	current, cluster := &currentIdentity{now: now, health: health, fresh: wake.New()}, &clusterID{}
	cluster.uid.Store(new("cluster"))
	store := &identityStore{Store: identity.File{Dir: t.TempDir()}, replica: "one", health: health, log: log}
	a.tunnels = &tunnels{
		replica: "one", log: log, health: health, cluster: cluster, current: current,
		clients: &clients{now: now, log: log, cluster: cluster, current: current},
		nodes:   &tunnelNodes{store: store, current: current, now: now, log: log}, news: newNews(), beat: wake.New(),
	}
	a.current.Store(id)
	parts, err := id.Encode()
	require.NoError(t, err)
	parts["next-by"] = []byte("another's")
	saved, err := a.nodes.store.Save(t.Context(), parts, "")
	require.NoError(t, err)
	require.True(t, saved)
	a.tun, err = a.open(t.Context())
	require.NoError(t, err)
	return a
}

// heartbeat is answered with nodes, a minute after the last one.
func (a *told) heartbeat(addresses ...string) {
	a.at = a.at.Add(nodesKeptEvery)
	a.nodes.take(a.t.Context(), a.tun, nodes(addresses...))
}

func (a *told) stored() *identity.Identity {
	a.t.Helper()
	parts, _, err := a.nodes.store.Load(a.t.Context())
	require.NoError(a.t, err)
	assert.Equal(a.t, "another's", string(parts["next-by"]), "what else is stored stays")
	id, err := identity.Decode(parts)
	require.NoError(a.t, err)
	return id
}

func (a *told) wanted() string {
	var all []string
	for _, n := range a.tun.Status().Nodes {
		all = append(all, n.Address)
	}
	return strings.Join(all, " ")
}

func TestTunnelNodes_SurviveRestart(t *testing.T) {
	a := newTold(t, issued(t))
	assert.Equal(t, "own.test:7000", a.wanted())
	for _, test := range []struct{ told, want string }{
		{"one.test:1 two.test:2 three.test:3", "one.test:1 two.test:2"},
		{"one.test:1 one.test:1 four.test:4", "one.test:1 four.test:4"},
		{"one.test", "one.test:1 four.test:4"}, // makes no sense
		{"two.test:2", "two.test:2"},
	} {
		a.heartbeat(strings.Fields(test.told)...)
		assert.Equal(t, test.want, a.wanted())
		assert.Equal(t, nodes(strings.Fields(test.want)...), a.stored().Tunnels)
		assert.Equal(t, nodes(strings.Fields(test.want)...), a.current.Load().Tunnels)
		again := newTold(t, a.stored())
		assert.Equal(t, test.want, again.wanted(), "after a restart")
	}
	assert.Equal(t, 1, strings.Count(a.log.String(), "invalid nodes for tunnels"))
	a.heartbeat()
	assert.Equal(t, "own.test:7000", a.wanted())
	assert.Nil(t, a.stored().Tunnels)
}

func TestTunnelNodes_LimitWrites(t *testing.T) {
	a := newTold(t, issued(t))
	a.heartbeat("one.test:1")
	for i := range 10 {
		a.nodes.take(t.Context(), a.tun, nodes(fmt.Sprintf("n%d.test:1", i)))
		assert.Equal(t, fmt.Sprintf("n%d.test:1", i), a.wanted(), "followed at once")
		assert.Equal(t, nodes("one.test:1"), a.stored().Tunnels)
	}
	a.heartbeat("n9.test:1")
	assert.Equal(t, nodes("n9.test:1"), a.stored().Tunnels)
	for range 3 {
		a.heartbeat("?") // at each heartbeat
	}
	assert.Equal(t, 1, strings.Count(a.log.String(), "invalid nodes for tunnels"), "said once")
}

// TestTunnelNodes_KeepRenewal has another replica store the next certificate meanwhile.
func TestTunnelNodes_KeepRenewal(t *testing.T) {
	a := newTold(t, issued(t))
	renewed := issued(t)
	parts, version, err := a.nodes.store.Load(t.Context())
	require.NoError(t, err)
	saved, err := a.nodes.store.saveBeside(t.Context(), renewed, parts, version)
	require.NoError(t, err)
	require.True(t, saved)
	a.heartbeat("one.test:1")
	assert.Equal(t, "one.test:1", a.wanted())
	assert.True(t, a.stored().Same(renewed))
	assert.Nil(t, a.stored().Tunnels)
	a.current.Store(renewed)
	a.heartbeat("one.test:1")
	assert.Equal(t, nodes("one.test:1"), a.stored().Tunnels)
}

func TestTunnelState(t *testing.T) {
	node := func(address string, phase tunnel.Phase, err string) tunnel.NodeStatus {
		return tunnel.NodeStatus{Endpoint: tunnel.Endpoint{Address: address}, Status: tunnel.Status{Phase: phase, LastError: err}, Wanted: true}
	}
	instead := node("c:1", tunnel.Connected, "")
	instead.Wanted = false
	for _, test := range []struct {
		phase                  tunnel.Phase
		nodes                  []tunnel.NodeStatus
		state, degraded, beats string
	}{
		{tunnel.Connected, []tunnel.NodeStatus{node("a:1", tunnel.Connected, "")}, stateOK, "", "connected"},
		{tunnel.Waiting, []tunnel.NodeStatus{node("a:1", tunnel.Waiting, "no route")}, "waiting: no route", "", "waiting"},
		{tunnel.Connected, []tunnel.NodeStatus{node("a:1", tunnel.Connected, ""), node("b:1", tunnel.Refused, "revoked")}, stateOK, "tunnels: 1 of 2 up; b:1 refused: revoked", "degraded"},
		{tunnel.Connected, []tunnel.NodeStatus{node("a:1", tunnel.Connected, ""), node("b:1", tunnel.Connecting, ""), instead}, stateOK, "tunnels: 2 of 2 up; b:1 connecting", "degraded"},
		{tunnel.Connecting, []tunnel.NodeStatus{node("a:1", tunnel.Connecting, ""), node("b:1", tunnel.Waiting, "no route")}, "a:1 connecting; b:1 waiting: no route", "", "connecting"},
	} {
		s := tunnel.SetStatus{Phase: test.phase, Nodes: test.nodes}
		assert.Equal(t, test.state, tunnelState(s))
		assert.Equal(t, test.degraded, tunnelsDegraded(s))
		assert.Equal(t, test.beats, tunnelPhase(s))
		assert.LessOrEqual(t, len(tunnelPhase(s)), 32, "as the API takes it")
	}
}

// TestTLS_SameUntilRenewal: calls use the tunnel as long as the TLS configuration is the one with
// which the tunnel was made, so changes of the nodes must not change it.
func TestTLS_SameUntilRenewal(t *testing.T) {
	id := issued(t)
	current := &currentIdentity{now: time.Now}
	current.Store(id)
	source := current.following((*identity.Identity).TLS)
	first := source()
	assert.Equal(t, id.Certificate.Certificate, first.Certificates[0].Certificate)
	current.Store(id.WithTunnels(nodes("one.test:7000")))
	assert.Same(t, first, source())

	more, err := id.With(controlapi.CAs{Bundle: id.CABundle + issued(t).CABundle})
	require.NoError(t, err)
	current.Store(more)
	other := source()
	assert.NotSame(t, first, other)
	assert.Same(t, other, source())
	renewed := issued(t)
	current.Store(renewed)
	assert.Equal(t, renewed.Certificate.Certificate, source().Certificates[0].Certificate)
}

// TestTunnels_FailedAttemptSendsNoHeartbeat: if the tunnels cannot be reached, heartbeats for each
// attempt would be a handshake of every agent.
func TestTunnels_FailedAttemptSendsNoHeartbeat(t *testing.T) {
	a := newTold(t, issued(t))
	a.heartbeat(freeport.Address(t))
	ctx, stop := context.WithCancel(t.Context())
	var parts sync.WaitGroup
	defer parts.Wait()
	defer stop()
	parts.Go(func() { assert.NoError(t, a.tun.Run(ctx)) })
	parts.Go(func() { assert.NoError(t, a.watch(ctx, a.tun, nil)) })
	for failed := 0; failed < 2; {
		changed := a.tun.Changed()
		if a.tun.Status().Nodes[0].Phase == tunnel.Waiting {
			failed++
		}
		await.Closed(t, changed, "another attempt")
	}
	assert.Empty(t, a.beat, "a heartbeat is due")
}
