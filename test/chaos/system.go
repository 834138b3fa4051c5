package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/pipeops/pipeops-vm-agent/test/chaos/ledger"
	"github.com/pipeops/pipeops-vm-agent/test/cluster"
	"github.com/pipeops/pipeops-vm-agent/test/faultproxy"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/postgres"
)

const (
	name      = "chaos" // of the system
	agentName = "chaos"
	namespace = "production" // of the Apps, which deployments/namespaces.yaml creates

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
	given    []string // addresses: see freeAddress

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
	c := &chaos{options: o, dir: dir, started: time.Now(), wires: map[string]*faultproxy.Proxy{}}
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
	for _, step := range []struct {
		title string
		do    func(context.Context) error
	}{
		{"the programs", c.build},
		{"Kubernetes", c.kubernetes},
		{"RabbitMQ", c.broker},
		{"PostgreSQL", c.registry},
		{"the control plane", c.controlPlanes},
		{"a Runner who listens", c.listen},
		{"the agent", c.agent},
		{"Runner's workers", c.hire},
	} {
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.title, err)
		}
	}
	return nil
}

func (c *chaos) build(ctx context.Context) (err error) {
	c.sys.Binaries, err = harness.Build(ctx)
	return err
}

// kubernetes starts a cluster with simulated pods: the run checks what commands change, not what
// runs.
func (c *chaos) kubernetes(ctx context.Context) error {
	c.onClose(c.sys.Close)
	if err := c.sys.StartKubernetes(ctx); err != nil {
		return err
	}
	if err := c.sys.ApplyAgentObjects(ctx); err != nil {
		return err
	}
	return c.simulatePods(ctx)
}

func (c *chaos) broker(ctx context.Context) error {
	if err := c.sys.StartBroker(ctx); err != nil {
		return err
	}
	target := fmt.Sprintf("127.0.0.1:%d", c.sys.Broker.Port())
	return errors.Join(c.wire(ctx, planeToBroker, target), c.wire(ctx, runnerToBroker, target))
}

// registry starts the control plane's database; SQLite needs none.
func (c *chaos) registry(ctx context.Context) (err error) {
	if c.SQLite {
		return nil
	}
	if c.postgres, err = postgres.Start(ctx, postgres.Options{Out: os.Stdout}); err != nil {
		return err
	}
	c.onClose(func(context.Context) error { return c.postgres.Stop() })
	if c.database, err = c.postgres.NewDatabase(ctx); err != nil {
		return err
	}
	return c.wire(ctx, planeToPostgres, fmt.Sprintf("127.0.0.1:%d", c.postgres.Port()))
}

// wire returns a new wire of that name, which ends with the run.
func (c *chaos) wire(ctx context.Context, name string, targets ...string) error {
	w, err := faultproxy.Listen(ctx, name, targets...)
	if err != nil {
		return err
	}
	c.wires[name] = w
	c.onClose(func(context.Context) error { return w.Close() })
	return nil
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
func (c *chaos) urlFile(name, url string) (string, error) {
	path := filepath.Join(c.dir, name)
	return path, os.WriteFile(path, []byte(url), 0o600)
}

// brokerURL returns RabbitMQ's URL over a wire.
func (c *chaos) brokerURL(user, over string) string {
	return c.sys.Broker.URLAt(user, c.wires[over].Addr())
}
