// Package cluster runs real one-node Kubernetes clusters for tests and demos, in Linux namespaces
// of their own. Several run side by side, start in seconds, and disappear without a trace. It needs
// root, and neither systemd nor Docker; it builds its own programs, once.
//
// It is for development and test machines, and does not protect the machine from what runs in the
// cluster.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"github.com/pipeops/pipeops-vm-agent/test/cluster/internal/node"
	"github.com/pipeops/pipeops-vm-agent/test/cluster/internal/parts"
)

// HostName is a name by which pods reach the machine that the cluster runs on.
const HostName = "host.cluster.test"

// DefaultName is the name of a cluster that is given none.
const DefaultName = "dev"

// KubernetesVersion is the version of the clusters.
const KubernetesVersion = parts.KubernetesVersion

// ErrNotFound means that there is no cluster of that name.
var ErrNotFound = errors.New("no such cluster")

// Cluster is a running cluster. Its methods may be used by several goroutines.
type Cluster struct {
	// Name distinguishes clusters.
	Name string

	dir   string
	state state
}

var validName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$`)

// Build makes the programs and images that clusters run, and reports the progress on out. If
// simulation is set, it also makes those for simulated nodes. It is idempotent, and Up calls it
// too.
func Build(ctx context.Context, simulation bool, out io.Writer) error {
	_, err := buildParts(ctx, parts.Extra{KWOK: simulation}, out)
	return err
}

func buildParts(ctx context.Context, extra parts.Extra, out io.Writer) (parts.Set, error) {
	cache, err := cacheDir()
	if err != nil {
		return parts.Set{}, err
	}
	set, err := parts.Build(ctx, cache, extra, out)
	if err != nil {
		return parts.Set{}, fmt.Errorf("build the test cluster's parts: %w", err)
	}
	return set, nil
}

// Get finds a running cluster by its name.
func Get(name string) (*Cluster, error) {
	c, err := find(name)
	if err != nil {
		return nil, err
	}
	if !c.Running() {
		return nil, fmt.Errorf("cluster %s is not running (any more); `up` starts it again: %w", name, ErrNotFound)
	}
	return c, nil
}

// List returns all clusters, including those of which only remains are left.
func List() ([]*Cluster, error) {
	names, err := clusterNames()
	if err != nil {
		return nil, err
	}
	var found []*Cluster
	for _, name := range names {
		c, err := find(name)
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		found = append(found, c)
	}
	return found, nil
}

// find also returns clusters that do not run. One whose directory has no state
// yet has nothing but the directory.
func find(name string) (*Cluster, error) {
	if !validName.MatchString(name) {
		return nil, fmt.Errorf("cluster name %q: use up to 40 lower-case letters, digits and dashes", name)
	}
	run, err := runDir()
	if err != nil {
		return nil, err
	}
	c := &Cluster{Name: name, dir: filepath.Join(run, name)}
	c.state, err = loadState(c.dir)
	if errors.Is(err, fs.ErrNotExist) {
		if _, statErr := os.Stat(c.dir); statErr == nil {
			return c, nil
		}
		return nil, fmt.Errorf("cluster %s: %w", name, ErrNotFound)
	}
	return c, err
}

// Running reports whether the cluster's process 1 is there.
func (c *Cluster) Running() bool { return c.state.Init.alive() }

// Ready reports whether Up has finished.
func (c *Cluster) Ready() bool { return c.state.Ready && c.Running() }

// SimulatedNodes returns how many nodes the cluster has that do not exist.
func (c *Cluster) SimulatedNodes() int { return c.state.SimulatedNodes }

// Kubeconfig returns the path of the administrator's kubeconfig.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.dir, "kubeconfig") }

// TrustRegistry makes the node pull the images of a registry from there, over TLS, and not from its
// own registry. The CA is in PEM.
func (c *Cluster) TrustRegistry(host string, authority []byte) error {
	dir := filepath.Join(c.dir, "certs.d", host)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("trust registry %s: %w", host, err)
	}
	hosts := fmt.Sprintf("server = \"https://%[1]s\"\n[host.\"https://%[1]s\"]\n  capabilities = [\"pull\", \"resolve\"]\n  ca = \"/run/cluster/certs.d/%[1]s/ca.crt\"\n", host)
	for name, text := range map[string][]byte{"ca.crt": authority, "hosts.toml": []byte(hosts)} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return fmt.Errorf("trust registry %s: %w", host, err)
		}
	}
	return nil
}

// HostIP returns the address at which pods reach this machine.
func (c *Cluster) HostIP() string { return c.state.Network.host().String() }

// NodeIP returns the address at which this machine reaches the node: its node ports, its registry,
// the API server.
func (c *Cluster) NodeIP() string { return c.state.Network.node().String() }

// NodeName returns the name of the node.
func (c *Cluster) NodeName() string { return "node-" + c.Name }

// LogDir returns where the logs of the components are.
func (c *Cluster) LogDir() string { return filepath.Join(c.dir, node.LogDir) }

// InitPID returns the process ID, on this machine, of the cluster's process 1.
func (c *Cluster) InitPID() int { return c.state.Init.PID }

// registryPort is where in the cluster the image registry listens.
const registryPort = "5000"

// Registry returns the address of the image registry, which uses plain HTTP.
func (c *Cluster) Registry() string { return c.NodeIP() + ":" + registryPort }
