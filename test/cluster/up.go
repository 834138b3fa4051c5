package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/pipeops/pipeops-vm-agent/test/cluster/internal/cgroup"
	"github.com/pipeops/pipeops-vm-agent/test/cluster/internal/node"
	"github.com/pipeops/pipeops-vm-agent/test/cluster/internal/parts"
)

const (
	// lockDir has the locks that all users and caches of the machine share.
	lockDir = "/run/lock/pipeops-test"

	upTimeout      = 10 * time.Minute
	cleanupTimeout = 30 * time.Second
)

// Options describe the cluster to start.
type Options struct {
	// Name is DefaultName if empty.
	Name string
	// ControlPlaneOnly starts only etcd, the API server and Kubernetes' garbage collector, in half
	// the time: for tests of controllers, which need no pods.
	ControlPlaneOnly bool
	// SimulatedNodes is how many simulated nodes to have beside the real one: see Simulate. They
	// need a part that is built when it is first requested.
	SimulatedNodes int
	// WithoutDNS and WithoutMetrics leave out what the cluster normally has.
	WithoutDNS     bool
	WithoutMetrics bool
	// Out receives the progress. It may be nil.
	Out io.Writer
}

// Up starts a cluster, or finds it running. It builds missing parts first. If Up fails, or its
// context ends, nothing is left.
func Up(ctx context.Context, options Options) (*Cluster, error) {
	if options.Name == "" {
		options.Name = DefaultName
	}
	if options.Out == nil {
		options.Out = io.Discard
	}
	if err := options.check(); err != nil {
		return nil, err
	}
	set, err := buildParts(ctx, parts.Extra{KWOK: options.SimulatedNodes > 0}, options.Out)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, upTimeout)
	defer cancel()
	unlock, err := lockName(ctx, options.Name)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return up(ctx, options, set)
}

func (o Options) check() error {
	switch {
	case !validName.MatchString(o.Name):
		return fmt.Errorf("cluster name %q: use up to 40 lower-case letters, digits and dashes", o.Name)
	case o.SimulatedNodes < 0 || o.SimulatedNodes > maxSimulatedNodes:
		return fmt.Errorf("%d simulated nodes: there can be 0 to %d", o.SimulatedNodes, maxSimulatedNodes)
	case o.SimulatedNodes > 0 && o.ControlPlaneOnly:
		return errors.New("simulated nodes need a scheduler and controllers: leave out control-plane-only")
	case os.Geteuid() != 0:
		return errors.New("the test cluster needs root: it makes namespaces, control groups and network interfaces")
	}
	return nil
}

func up(ctx context.Context, options Options, set parts.Set) (*Cluster, error) {
	c, err := find(options.Name)
	switch {
	case errors.Is(err, ErrNotFound):
	case err != nil:
		return nil, err
	case c.Ready():
		return c, c.alreadyUp(options)
	default:
		fmt.Fprintf(options.Out, "removing what is left of an earlier cluster %s\n", c.Name)
		if err := c.remove(ctx); err != nil {
			return nil, err
		}
	}
	if err := raiseInotify(options.Out); err != nil {
		return nil, err
	}
	timer := &stopwatch{out: options.Out, start: time.Now()}
	c, err = start(ctx, options, set)
	if err == nil {
		err = c.explain(c.finish(ctx, options, set, timer))
	}
	if err == nil {
		return c, nil
	}
	if c != nil {
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		err = errors.Join(err, c.remove(cleanup))
	}
	return nil, fmt.Errorf("bring up cluster %s: %w", options.Name, err)
}

func (c *Cluster) alreadyUp(options Options) error {
	if c.state.ControlPlaneOnly != options.ControlPlaneOnly {
		return fmt.Errorf("cluster %s runs already, but %s: take it down first, or choose another name",
			c.Name, map[bool]string{true: "without a node", false: "with a node"}[c.state.ControlPlaneOnly])
	}
	if c.state.SimulatedNodes != options.SimulatedNodes {
		return fmt.Errorf("cluster %s runs already, with %d simulated nodes: take it down first, or choose another name",
			c.Name, c.state.SimulatedNodes)
	}
	fmt.Fprintf(options.Out, "cluster %s is up already\n", c.Name)
	return nil
}

// start prepares the cluster's directory and starts process 1. It returns the cluster, for removal,
// even with an error.
func start(ctx context.Context, options Options, set parts.Set) (*Cluster, error) {
	run, err := runDir()
	if err != nil {
		return nil, err
	}
	routes, err := hostRoutes()
	if err != nil {
		return nil, err
	}
	reserved, err := reserve(lockDir, usableBeside(routes))
	if err != nil {
		return nil, err
	}
	defer reserved.file.Close() //nolint:errcheck // process 1 has its own
	// The lock is ours, so the process that made an existing interface is dead.
	if err := reserved.disconnect(ctx); err != nil {
		return nil, err
	}
	c := &Cluster{Name: options.Name, dir: filepath.Join(run, options.Name)}
	c.state = state{
		Name: options.Name, ControlPlaneOnly: options.ControlPlaneOnly, SimulatedNodes: options.SimulatedNodes,
		Network: reserved.network, Hyperkube: set.Hyperkube, Started: time.Now(),
	}
	if c.state.Cgroup, err = cgroup.Plan(fmt.Sprintf("pipeops-test-%d-%s", reserved.Index, options.Name)); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make directory of the cluster: %w", err)
	}
	// First of all, record what must be removed later.
	if err := c.state.save(c.dir); err != nil {
		return c, err
	}
	if err := c.writeConfig(set); err != nil {
		return c, err
	}
	if err := c.state.Cgroup.Create(); err != nil {
		return c, err
	}
	return c, c.launch(ctx, set.Cluster, reserved)
}

// finish connects the cluster and waits for what the options request.
func (c *Cluster) finish(ctx context.Context, options Options, set parts.Set, timer *stopwatch) error {
	if err := c.state.Network.connect(ctx, c.state.Init.PID); err != nil {
		return err
	}
	if !options.ControlPlaneOnly {
		if err := c.waitEvent(ctx, node.Ready, "registry"); err != nil {
			return err
		}
		for _, layout := range set.Images {
			if err := c.LoadFile(ctx, layout, ""); err != nil {
				return err
			}
		}
	}
	if err := c.waitEvent(ctx, node.Ready, "kube-apiserver"); err != nil {
		return err
	}
	timer.lap("API server ready")
	if err := c.waitEvent(ctx, node.Up, ""); err != nil {
		return err
	}
	if !options.ControlPlaneOnly {
		if err := c.addons(ctx, options, timer); err != nil {
			return err
		}
	}
	c.state.Ready = true
	return c.state.save(c.dir)
}

func (c *Cluster) addons(ctx context.Context, options Options, timer *stopwatch) error {
	client, err := newAPIClient(c.Kubeconfig())
	if err != nil {
		return err
	}
	for _, addon := range []struct {
		manifest string
		without  bool
	}{{"coredns.yaml", options.WithoutDNS}, {"metrics-server.yaml", options.WithoutMetrics}} {
		if addon.without {
			continue
		}
		manifest, err := render(addon.manifest, c.values())
		if err != nil {
			return err
		}
		if err := client.apply(ctx, manifest); err != nil {
			return err
		}
	}
	if err := client.waitNode(ctx, c.NodeName()); err != nil {
		return err
	}
	timer.lap("node ready")
	if options.SimulatedNodes > 0 {
		if err := client.simulateNodes(ctx, options.SimulatedNodes); err != nil {
			return err
		}
		timer.lap(fmt.Sprintf("%d simulated nodes ready", options.SimulatedNodes))
	}
	if !options.WithoutDNS {
		if err := client.waitDeployment(ctx, "coredns"); err != nil {
			return err
		}
		timer.lap("DNS ready")
	}
	return nil
}

// stopwatch prints how long after the start each phase was reached.
type stopwatch struct {
	out   io.Writer
	start time.Time
}

func (s *stopwatch) lap(phase string) {
	fmt.Fprintf(s.out, "%6.1fs  %s\n", time.Since(s.start).Seconds(), phase)
}
