package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/rabbitmq"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/login"
	"github.com/pipeops/pipeops-vm-agent/test/bench/run"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
)

const onlineTimeout = time.Minute

// runner is one Runner's credentials in use.
type runner struct {
	*login.Login
	snapshots announce.SnapshotClient
}

// newRunner makes a Runner. Its way to the API is not the agents'.
func (c *chaos) newRunner(ctx context.Context, name string) *runner {
	file := filepath.Join(c.dir, "runner-"+name+".json")
	run.Must(c.operate(ctx, "runner", "create", name, "-o", file))
	credentials := run.Must(credentials.Load(file))
	credentials.ControlPlane = "https://" + c.wires[runnerToAPI].Addr()
	l := run.Must(login.New(login.Config{Credentials: credentials}))
	return &runner{Login: l, snapshots: announce.SnapshotClient{BaseURL: credentials.ControlPlane, HTTPClient: l.HTTPClient()}}
}

// queue returns what a Runner's own queue is consumed with.
func (r *runner) queue(log zerolog.Logger) announce.ConsumerConfig {
	credentials := r.Credentials()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(credentials.Broker.CA))
	return announce.ConsumerConfig{
		Config: rabbitmq.Config{
			URLs: []string{credentials.Broker.URL}, TLS: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}, Log: log, Name: "chaos " + credentials.Runner,
		},
		Queue: rabbitmq.RunnerQueue(credentials.Runner),
	}
}

// listener is the Runner's side of the announcements: all events as they came, and
// the directory that a second Runner keeps from its own.
type listener struct {
	runner    *runner
	directory *announce.Directory

	mu      sync.Mutex
	events  []announce.Event
	changes []announce.Change // that the directory's watcher was told
	out     *json.Encoder
}

// listen makes both Runners listen before there is an agent, so that they receive its first event.
func (c *chaos) listen(ctx context.Context) {
	log := zerolog.New(zerolog.SyncWriter(run.Must(c.create("runner.log")))).Level(zerolog.DebugLevel).With().Timestamp().Logger()
	l := &listener{out: json.NewEncoder(run.Must(c.create("heard.jsonl"))), runner: c.newRunner(ctx, "worker")}
	watcher := c.newRunner(ctx, "watcher")
	events, bound := l.runner.queue(log), make(chan struct{})
	events.Ready = sync.OnceFunc(func() { close(bound) })
	consumer, theirs := run.Must(announce.NewConsumer(events)), watcher.queue(log)
	l.directory = run.Must(announce.NewDirectory(announce.DirectoryConfig{Snapshot: watcher.snapshots.Agents, Timeline: watcher.snapshots.Timeline, Events: &theirs, Log: log}))
	c.listener = l
	c.background(func(ctx context.Context) { _ = consumer.Run(ctx, l.hear) }) // ends with ctx only
	c.background(func(ctx context.Context) { _ = l.directory.Run(ctx) })
	c.background(func(ctx context.Context) { _ = l.directory.Watch(ctx, l.watch) })
	select {
	case <-bound:
		run.Check(l.directory.WaitSynced(ctx))
	case <-ctx.Done():
		run.Failf("no queue for the Runner: %w", consumer.Status().Err)
	}
}

// background runs until the end of the run, which waits for it.
func (c *chaos) background(do func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); do(ctx) }()
	c.onClose(func(context.Context) error { cancel(); <-done; return nil })
}

func (l *listener) hear(_ context.Context, e announce.Event) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
	return l.out.Encode(e)
}

func (l *listener) watch(c announce.Change) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changes = append(l.changes, c)
	return nil
}

// watched returns the changes so far.
func (l *listener) watched() []announce.Change {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.changes)
}

// all returns the events so far.
func (l *listener) all() []announce.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.events)
}

// online returns why the Runner's directory would not have it call the agent.
func (l *listener) online(context.Context) error {
	a, err := l.directory.Get(agentName)
	switch {
	case err != nil:
		return err
	case a.State != announce.StateOnline:
		return fmt.Errorf("the agent is %s to the Runner", a.State)
	case len(a.Endpoints) == 0:
		return errors.New("the agent has no endpoint to the Runner")
	}
	return nil
}

func (l *listener) awaitOnline(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, onlineTimeout)
	defer cancel()
	return harness.Eventually(ctx, "the agent is announced", l.online)
}
