// Package crowd runs thousands of agents. To the control plane each is a real agent,
// built from the agent's own parts: its identity, its client of the control API, its tunnel, and
// the Runner API's TLS and server behind that. The rest is simulated. An agent of the crowd has no
// Kubernetes, so its cluster's figures are invented. It has no engine for Apps, so its Apps' events
// are invented too. Its heartbeat loop is a short one in this package.
package crowd

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/agent/identity"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/transport"
	"github.com/pipeops/pipeops-vm-agent/test/bench/run"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
)

// Crowd is the agents.
type Crowd []*agent

const (
	// enrolling is how many agents register, or send events, at a time.
	enrolling = 16
	// batch is how many events an agent sends in one call.
	batch   = 5
	version = "v0.0.0-bench"
)

// Name returns the name of an agent.
func Name(number int) string { return fmt.Sprintf("bench-%05d", number) }

func clusterUID(number int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", number) }

// Enrol registers that many agents at a control plane.
func Enrol(ctx context.Context, url, caFile, token string, count int) Crowd {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(run.Must(os.ReadFile(caFile)))
	secure := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: pool}
	client := run.Must(controlapi.NewClient(controlapi.ClientConfig{URL: url, TLS: func() *tls.Config { return secure }, Log: zerolog.Nop()}))
	defer client.Close()
	enrol := func(ctx context.Context, number int) *identity.Identity {
		key := run.Must(identity.NewKey())
		answer := run.Must(client.Register(ctx, run.Must(controlapi.ParseToken(token)), controlapi.RegisterRequest{
			Name: Name(number), ClusterUID: clusterUID(number), CSR: run.Must(identity.CSR(key)), Clock: time.Now(), AgentVersion: version,
			RunnerAPIVersion: "v1", KubernetesVersion: kubernetesVersion, Distribution: "simulated", Capacity: capacity,
		}))
		return run.Must(identity.New(key, answer, identity.Registration{}))
	}
	first := enrol(ctx, 0)
	c := make(Crowd, count)
	run.Parallel(ctx, count, enrolling, func(ctx context.Context, i int) {
		id := first
		if i > 0 {
			id = enrol(ctx, i)
		}
		// All trust the same CA objects: outside a crowd, a process has one agent and one copy.
		if id.CABundle == first.CABundle && id.FormerCAs == first.FormerCAs {
			id.CABundle, id.FormerCAs, id.Roots = first.CABundle, first.FormerCAs, first.Roots
		}
		// An agent needs these only to store its identity and to renew it in time.
		id.Certificate.Leaf, id.Identity.Certificate = nil, ""
		c[i] = newAgent(id, i, url)
	})
	return c
}

// Connect connects all agents at once, and keeps them connected to the end of the process.
func (c Crowd) Connect() {
	for _, a := range c {
		go a.live(context.Background())
	}
}

// Back counts the agents with a tunnel since the given time or later, and an answered heartbeat
// since then. It returns a failure of any agent, too.
func (c Crowd) Back(since time.Time) (n int, trouble string) {
	for _, a := range c {
		if a.connectedSince(since) && a.heard.Load() > since.UnixNano() {
			n++
		}
		if t := a.trouble.Load(); t != nil {
			trouble = *t
		}
	}
	return n, trouble
}

// Beats returns how many heartbeats were answered since the start.
func (c Crowd) Beats() (n int64) {
	for _, a := range c {
		n += a.beats.Load()
	}
	return n
}

// Post makes each of the agents send that many events about its App, in order; several agents do at
// a time.
func (c Crowd) Post(ctx context.Context, each int) {
	run.Parallel(ctx, len(c), enrolling, func(ctx context.Context, i int) {
		for first := 0; first < each; first += batch {
			run.Check(c[i].tell(ctx, first, min(batch, each-first)))
		}
	})
}

// busyInterval is the agent's own interval, while something changes.
const busyInterval = 5 * time.Second

const kubernetesVersion = "v1.36.3"

// capacity is the capacity of every simulated cluster.
var capacity = controlapi.Capacity{Nodes: 3, ReadyNodes: 3, Pods: 330, RunningPods: 42, CPUMillis: 12000, MemoryBytes: 48 << 30}

// agent is one of the crowd.
type agent struct {
	id       *identity.Identity
	instance string
	process  string
	control  *controlapi.Client
	tunnel   *tunnel.Tunnel

	refreshed chan struct{}
	ticket    string // the heartbeat's
	idle      time.Duration
	beats     atomic.Int64
	heard     atomic.Int64 // when the last heartbeat was answered, in Unix nanoseconds
	trouble   atomic.Pointer[string]
}

func newAgent(id *identity.Identity, number int, url string) *agent {
	secure, own, cluster := id.ControlPlaneTLS(nil), id.TLS(), clusterUID(number)
	a := &agent{
		id: id, instance: "pod-" + strconv.Itoa(number), process: rand.Text(),
		idle: time.Duration(id.HeartbeatInterval) * time.Second, refreshed: make(chan struct{}, 1),
	}
	a.tunnel = run.Must(tunnel.New(tunnel.Config{
		ServerAddress: id.Tunnel.Address, ServerName: id.Tunnel.ServerName, AgentID: id.AgentID, Instance: a.instance,
		Cluster: func() string { return cluster }, Log: zerolog.Nop(),
		TLS: func(context.Context) (*tls.Config, error) { return own, nil },
	}))
	a.control = run.Must(controlapi.NewClient(controlapi.ClientConfig{
		URL: url, TLS: func() *tls.Config { return secure }, Log: zerolog.Nop(), Streams: a.tunnel,
		Origin: func() controlapi.Origin { return controlapi.Origin{Instance: a.instance, ClusterUID: cluster} },
	}))
	return a
}

// live keeps the tunnel up, serves its connections and sends heartbeats.
func (a *agent) live(ctx context.Context) {
	var parts sync.WaitGroup
	defer parts.Wait()
	parts.Go(func() { a.note(a.tunnel.Run(ctx)) })
	parts.Go(func() { a.heartbeats(ctx) })
	a.note(transport.Serve(ctx, a.tunnel.Listener(), transport.ServeConfig{
		Handler: http.NotFoundHandler(), Log: zerolog.Nop(),
		TLS: transport.TLS(transport.TLSConfig{
			Certificate: func() (*tls.Certificate, error) { return &a.id.Certificate, nil },
			Roots:       func() *x509.CertPool { return a.id.Roots }, TrustDomain: a.id.TrustDomain,
			Refresh: a.refresh,
		}),
	}))
}

// refresh handles a refresh request: the next heartbeat comes now, or after the one in progress.
func (a *agent) refresh(context.Context) error {
	if a.beats.Load() > 0 { // otherwise one is already due
		select {
		case a.refreshed <- struct{}{}:
		default:
		}
	}
	return nil
}

// note keeps the last failure.
func (a *agent) note(err error) {
	if err != nil {
		a.trouble.Store(new(a.id.AgentID + ": " + err.Error()))
	}
}

// heartbeats follows the agent's schedule: soon after a change or a failed call, and otherwise at
// the control plane's interval.
func (a *agent) heartbeats(ctx context.Context) {
	a.tunnel.Settle(ctx)
	for last := tunnel.Phase(""); ctx.Err() == nil; {
		phase, next := a.tunnel.Status().Phase, busyInterval
		if err := a.beat(ctx, phase); err != nil {
			a.note(err)
		} else if phase == last {
			next = a.idle
		}
		last = phase
		select {
		case <-a.refreshed:
		case <-time.After(next):
		case <-ctx.Done():
		}
	}
}

func (a *agent) beat(ctx context.Context, phase tunnel.Phase) error {
	answer, err := a.control.Heartbeat(ctx, controlapi.Heartbeat{
		Clock: time.Now(), AgentVersion: version, RunnerAPIVersion: "v1", KubernetesVersion: kubernetesVersion,
		Distribution: "simulated", Capacity: capacity, TunnelPhase: string(phase), Instance: a.instance, Process: a.process, Ticket: a.ticket,
	})
	if err != nil {
		return err
	}
	a.ticket = answer.Ticket
	if answer.IntervalSeconds > 0 {
		a.idle = time.Duration(answer.IntervalSeconds) * time.Second
	}
	a.beats.Add(1)
	a.heard.Store(time.Now().UnixNano())
	return nil
}

func (a *agent) connectedSince(t time.Time) bool {
	s := a.tunnel.Status()
	return s.Phase == tunnel.Connected && s.Since.After(t)
}

// tell sends n events of an App, numbered from first.
func (a *agent) tell(ctx context.Context, first, n int) error {
	events := make([]controlapi.Event, n)
	for i := range events {
		events[i] = controlapi.Event{
			ID: fmt.Sprintf("bench-%d", first+i), Type: "app.progressing", Time: time.Now(),
			App: &controlapi.AppEvent{
				Namespace: "shop", Name: "web", Image: "registry.example.com/shop/web:1.4.2", Generation: int64(first + i + 1),
				Replicas: 3, Ready: 2, Message: "2 of 3 pods are ready",
			},
		}
	}
	return a.control.Events(ctx, controlapi.EventsRequest{Events: events})
}
