package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pipeops/pipeops-vm-agent/test/bench/run"
	"github.com/pipeops/pipeops-vm-agent/test/chaos/ledger"
	"github.com/pipeops/pipeops-vm-agent/test/cluster"
	"github.com/pipeops/pipeops-vm-agent/test/faultproxy"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/postgres"
)

const (
	name      = "chaos" // of the system
	agentName = "chaos"
	namespace = "production" // of the Apps, which test/kubetest/production.yaml creates

	upTimeout    = 15 * time.Minute
	closeTimeout = 2 * time.Minute
)

// chaos is one run.
type chaos struct {
	options
	dir     string
	started time.Time

	sys      *harness.System
	postgres *postgres.Server
	database *postgres.Database
	wires    map[string]*faultproxy.Proxy
	planes   []*plane
	data     []string // flags for their storage
	agents   []*agentReplica
	given    map[int]bool // ports: see freeAddress

	ledger   *ledger.Ledger
	workers  []*worker
	listener *listener
	auditor  *auditor
	sizes    []ledger.Size // at the end of the previous round
	kills    kills
	books    books

	printing sync.Mutex
	faultLog *os.File
	closers  []func(context.Context) error
}

// newChaos returns a run in which nothing runs yet.
func newChaos(o options) (*chaos, error) {
	dir, err := os.MkdirTemp("", fmt.Sprintf("pipeops-chaos-%d-", o.Seed))
	if err != nil {
		return nil, err
	}
	c := &chaos{options: o, dir: dir, started: time.Now(), wires: map[string]*faultproxy.Proxy{}, given: map[int]bool{}}
	books, err := c.create("commands.jsonl")
	if err != nil {
		return nil, err
	}
	c.ledger = ledger.New(books)
	if c.faultLog, err = c.create("faults.log"); err != nil {
		return nil, err
	}
	c.sys, err = harness.New(harness.Options{
		Name: name, Dir: dir, Out: os.Stdout,
		// These runs use neither metrics nor DNS.
		Kubernetes: cluster.Options{SimulatedNodes: 2, WithoutMetrics: true, WithoutDNS: true},
	})
	return c, err
}

// create creates a file of the run, which is closed at the end.
func (c *chaos) create(file string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(c.dir, file), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err == nil {
		c.onClose(func(context.Context) error { return f.Close() })
	}
	return f, err
}

func (c *chaos) onClose(f func(context.Context) error) { c.closers = append(c.closers, f) }

// say prints a line with the time since the start, and stores it.
func (c *chaos) say(format string, args ...any) {
	c.printing.Lock()
	defer c.printing.Unlock()
	line := fmt.Sprintf("%7.1fs  %s\n", time.Since(c.started).Seconds(), fmt.Sprintf(format, args...))
	_, _ = os.Stdout.WriteString(line)
	_, _ = c.faultLog.WriteString(line) // the screen shows the same
}

// up starts all parts, each before those that need it.
func (c *chaos) up(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, upTimeout)
	defer cancel()
	return run.Try(func() {
		c.sys.Binaries = run.Must(harness.Build(ctx))
		c.kubernetes(ctx)
		c.broker(ctx)
		c.registry(ctx)
		c.controlPlanes(ctx)
		c.listen(ctx)
		c.agent(ctx)
		c.hire()
	})
}

// kubernetes starts a cluster with simulated pods: the run checks what commands change, not what
// runs.
func (c *chaos) kubernetes(ctx context.Context) {
	c.onClose(c.sys.Close)
	run.Check(c.sys.StartKubernetes(ctx))
	run.Check(c.sys.ApplyAgentObjects(ctx))
	patch := run.Must(json.Marshal(map[string]any{"metadata": map[string]any{"annotations": cluster.Simulate()}}))
	run.Must(c.sys.Kube.Clientset.CoreV1().Namespaces().Patch(ctx, namespace, types.MergePatchType, patch, metav1.PatchOptions{}))
}

func (c *chaos) broker(ctx context.Context) {
	run.Check(c.sys.StartBroker(ctx))
	target := fmt.Sprintf("127.0.0.1:%d", c.sys.Broker.Port())
	c.wire(ctx, planeToBroker, target)
	c.wire(ctx, runnerToBroker, target)
}

// registry starts the control plane's database; SQLite needs none.
func (c *chaos) registry(ctx context.Context) {
	if c.SQLite {
		return
	}
	c.postgres = run.Must(postgres.Start(ctx, postgres.Options{Out: os.Stdout}))
	c.onClose(func(context.Context) error { return c.postgres.Stop() })
	c.database = run.Must(c.postgres.NewDatabase(ctx))
	c.wire(ctx, planeToPostgres, fmt.Sprintf("127.0.0.1:%d", c.postgres.Port()))
}

// wire adds a new wire of that name, which ends with the run.
func (c *chaos) wire(ctx context.Context, name string, targets ...string) {
	w := run.Must(faultproxy.Listen(ctx, name, targets...))
	c.wires[name] = w
	c.onClose(func(context.Context) error { return w.Close() })
}

// end stops everything. It keeps what is needed to analyse a failed run.
func (c *chaos) end(failed error) error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if failed != nil {
		c.say("failed: %v", failed)
		if err := c.keepLogs(ctx); err != nil {
			c.say("not all logs were kept: %v", err)
		}
	}
	var errs []error
	for i := len(c.closers) - 1; i >= 0; i-- {
		errs = append(errs, c.closers[i](ctx))
	}
	if failed == nil {
		return errors.Join(append(errs, os.RemoveAll(c.dir))...)
	}
	return fmt.Errorf("%w\nlogs: %s\nrun the same again: %s", errors.Join(append([]error{failed}, errs...)...), c.dir, c.again())
}

// keepLogs copies the logs of parts that remove them at their end. The product's logs are in the
// run's directory anyway.
func (c *chaos) keepLogs(context.Context) error {
	var errs []error
	keep := func(to, from string) {
		text, err := os.ReadFile(from)
		errs = append(errs, err, os.WriteFile(filepath.Join(c.dir, to), text, 0o600))
	}
	if c.sys.Broker != nil {
		keep("rabbitmq.log", filepath.Join(c.sys.Broker.LogDir(), "rabbitmq.log"))
	}
	if c.postgres != nil {
		keep("postgres.log", c.postgres.LogFile())
	}
	if c.sys.Cluster != nil {
		keep("kube-apiserver.log", filepath.Join(c.sys.Cluster.LogDir(), "kube-apiserver.log"))
	}
	return errors.Join(errs...)
}

// urlFile writes a URL with a password to a file that only this user can read.
func (c *chaos) urlFile(name, url string) string {
	path := filepath.Join(c.dir, name)
	run.Check(os.WriteFile(path, []byte(url), 0o600))
	return path
}

// brokerURL returns RabbitMQ's URL over a wire.
func (c *chaos) brokerURL(user, over string) string {
	return c.sys.Broker.URLAt(user, c.wires[over].Addr())
}
