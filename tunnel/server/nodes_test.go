package server_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/edge"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/tunneltest"
	"github.com/pipeops/pipeops-vm-agent/tunnel/server"
)

// node is a control plane's: frps, and the edge that Runners come to.
type node struct {
	t            testing.TB
	ca           *runnertest.CA
	tunnel, edge string // addresses
	*server.Server
	stop func()
}

// start serves on the addresses of before, or on new ones.
func (n *node) start() {
	n.t.Helper()
	cert := n.ca.Issue(n.t, credentials.ControlPlaneURI(runnertest.TrustDomain), tunneltest.ServerName)
	s, err := server.New(server.Config{
		TLS:      &tls.Config{Certificates: []tls.Certificate{cert}, ClientCAs: n.ca.Pool, MinVersion: tls.VersionTLS13},
		Identify: func(tls.ConnectionState) (string, error) { return runnertest.AgentID, nil },
		Log:      testLog(),
	})
	require.NoError(n.t, err)
	n.Server = s
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serve := func(address *string, serve func(context.Context, net.Listener) error) {
		ln, err := new(net.ListenConfig).Listen(ctx, "tcp", cmp.Or(*address, "127.0.0.1:0"))
		require.NoError(n.t, err)
		if *address == "" {
			*address = ln.Addr().String()
		}
		serving.Go(func() {
			assert.NoError(n.t, serve(ctx, ln))
		})
	}
	serve(&n.tunnel, s.Serve)
	serve(&n.edge, edge.New(edge.Config{Domain: "agents.example.com", Handover: s.Handover, Log: testLog()}).Serve)
	n.stop = sync.OnceFunc(func() { cancel(); serving.Wait() })
	n.t.Cleanup(n.stop)
}

// twoNodes are two nodes, an agent with a tunnel to each, and a Runner that knows both edges.
type twoNodes struct {
	nodes  [2]*node
	set    *tunnel.Set
	agent  *runnertest.Agent
	runner *client.Client
}

func startTwoNodes(t testing.TB) *twoNodes {
	t.Helper()
	agent := runnertest.Start(t, runnertest.NewBackend())
	agent.Stop() // from its port: it serves on the tunnels
	all := &twoNodes{agent: agent}
	var told []tunnel.Endpoint
	for i := range all.nodes {
		n := &node{t: t, ca: agent.CA}
		n.start()
		all.nodes[i], told = n, append(told, at(n.tunnel))
	}
	cert := agent.CA.Issue(t, credentials.AgentURI(runnertest.TrustDomain, runnertest.AgentID), runnertest.ServerName)
	set, err := tunnel.NewSet(tunnel.SetConfig{Config: tunnel.Config{
		ServerAddress: told[0].Address, ServerName: told[0].ServerName, AgentID: runnertest.AgentID, Instance: "one",
		TLS: func(context.Context) (*tls.Config, error) {
			return &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: agent.CA.Pool, MinVersion: tls.VersionTLS13}, nil
		},
		Backoff: tunnel.Backoff{Initial: 50 * time.Millisecond, Max: 200 * time.Millisecond}, Log: testLog(),
	}})
	require.NoError(t, err)
	all.set = set
	_, err = set.Keep(told, told[0])
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = set.Run(ctx) })
	agent.StartOn(set.Listener())
	config := agent.ClientConfig()
	config.EdgeAddresses = []string{all.nodes[0].edge, all.nodes[1].edge}
	all.runner, err = client.New(config)
	require.NoError(t, err)
	t.Cleanup(func() {
		all.runner.Close()
		agent.Stop()
		cancel()
		running.Wait()
	})
	all.awaitBoth(t)
	return all
}

// awaitBoth waits until Runners can come over either node.
func (all *twoNodes) awaitBoth(t testing.TB) {
	t.Helper()
	await.Until(t, "both tunnels are up", func() bool {
		up, _ := all.set.Status().Up()
		return up == 2 && all.nodes[0].Connected(runnertest.AgentID) && all.nodes[1].Connected(runnertest.AgentID)
	})
}

// worker sends the commands of one App, and counts.
type worker struct {
	runner          *client.Client
	key             runnerapi.Key
	reads, restarts int
	slowest         time.Duration
	commands        *atomic.Int64 // of all workers
}

func (w *worker) timed(do func() error) error {
	began := time.Now()
	err := do()
	w.commands.Add(1)
	w.slowest = max(w.slowest, time.Since(began))
	return err
}

// work reads, and restarts its App now and then, until it is told to stop.
func (w *worker) work(ctx context.Context, stop <-chan struct{}, random *rand.Rand) error {
	if _, err := w.runner.Apps().Deploy(ctx, w.key, runnerapi.AppSpec{Image: "a"}, runnerapi.WriteOptions{}); err != nil {
		return fmt.Errorf("deploy: %w", err)
	}
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		if err := w.timed(func() error { return w.command(ctx, random.IntN(4)) }); err != nil {
			return err
		}
	}
}

func (w *worker) command(ctx context.Context, which int) (err error) {
	switch which {
	case 0:
		if _, err = w.runner.Apps().Restart(ctx, w.key, runnerapi.WriteOptions{}); err != nil {
			return fmt.Errorf("restart: %w", err)
		}
		w.restarts++
		return nil
	case 1:
		_, err = w.runner.Apps().List(ctx, "")
	default:
		_, err = w.runner.Apps().Get(ctx, w.key)
	}
	w.reads++
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	return nil
}

func seed(t testing.TB) uint64 {
	t.Helper()
	n := rand.Uint64()
	if text := os.Getenv("TUNNEL_TEST_SEED"); text != "" {
		n, _ = strconv.ParseUint(text, 10, 64)
	}
	t.Logf("TUNNEL_TEST_SEED=%d", n)
	return n
}

// Kills and restarts each of two nodes in turn while twenty Runners send commands: none fails,
// no write runs twice, and a followed log loses no line.
func TestNodes_EitherMayDie(t *testing.T) {
	t.Parallel() // it waits most of the time
	const clients, rounds = 20, 4
	all, n := startTwoNodes(t), seed(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	stop := make(chan struct{})
	workers, errs := make([]*worker, clients), make([]error, clients)
	var working sync.WaitGroup
	var commands atomic.Int64
	for i := range workers {
		w := &worker{runner: all.runner, commands: &commands, key: runnerapi.Key{Namespace: "production", Name: fmt.Sprint("app-", i)}}
		workers[i] = w
		working.Go(func() { errs[i] = w.work(ctx, stop, rand.New(rand.NewPCG(n, uint64(i)))) })
	}
	lines := follow(ctx, t, all, rounds)

	random := rand.New(rand.NewPCG(n, clients))
	for round := range rounds {
		dies := all.nodes[round%2]
		awaitSome(t, &commands, random)
		dies.stop()
		all.agent.Backend.Log(runnerapi.LogLine{Pod: "pod", Time: time.Now(), Line: fmt.Sprint("line ", round)})
		awaitSome(t, &commands, random)
		dies.start()
		all.awaitBoth(t)
	}
	close(stop)
	working.Wait()
	assert.NoError(t, errors.Join(errs...))
	reads, restarts, slowest := 0, 0, time.Duration(0)
	for _, w := range workers {
		reads, restarts, slowest = reads+w.reads, restarts+w.restarts, max(slowest, w.slowest)
		app, err := all.runner.Apps().Get(ctx, w.key)
		if err != nil || app.Generation != int64(1+w.restarts) {
			t.Errorf("%s: generation %d after %d restarts, %v", w.key, app.Generation, w.restarts, err)
		}
	}
	t.Logf("%d reads, %d writes while nodes died %d times; the slowest took %s", reads, restarts, rounds, slowest)
	want := make([]string, rounds)
	for i := range want {
		want[i] = fmt.Sprint("line ", i)
	}
	assert.Equal(t, want, lines(), "the followed log")
}

// awaitSome waits for any moment: until some more commands are done, which they have to be
// whichever node is away.
func awaitSome(t *testing.T, commands *atomic.Int64, random *rand.Rand) {
	t.Helper()
	until := commands.Load() + 1 + random.Int64N(50)
	await.Until(t, "commands go on", func() bool { return commands.Load() >= until })
}

// follow follows the log that all Apps share, until that many lines have come.
func follow(ctx context.Context, t testing.TB, all *twoNodes, wanted int32) (lines func() []string) {
	t.Helper()
	var got []string
	var count atomic.Int32
	done := make(chan error, 1)
	key := runnerapi.Key{Namespace: "production", Name: "logs"}
	_, err := all.runner.Apps().Deploy(ctx, key, runnerapi.AppSpec{Image: "a"}, runnerapi.WriteOptions{})
	require.NoError(t, err)
	following, stop := context.WithCancel(ctx)
	go func() {
		done <- all.runner.Apps().Logs(following, key, runnerapi.LogOptions{Follow: true, Tail: -1}, func(l runnerapi.LogLine) error {
			got = append(got, l.Line)
			count.Add(1)
			return nil
		})
	}()
	return func() []string {
		await.Until(t, "the log is there", func() bool { return count.Load() >= wanted })
		stop()
		assert.NoError(t, await.Receive(t, done, "the end of the log"), "the followed log")
		return got
	}
}
