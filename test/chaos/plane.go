package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/test/bench/run"
	"github.com/pipeops/pipeops-vm-agent/test/broker"
	"github.com/pipeops/pipeops-vm-agent/test/debian"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
)

// The wires, by caller and callee.
const (
	agentToAPI        = "agent to API"
	agentToTunnel     = "agent to tunnel"
	agentToKubernetes = "agent to Kubernetes"
	runnerToAPI       = "Runner to API"
	runnerToEdge      = "Runner to edge"
	runnerToBroker    = "Runner to broker"
	planeToBroker     = "control plane to broker"
	planeToPostgres   = "control plane to PostgreSQL"
	planeToPlane      = "control plane to control plane"
)

const (
	// heartbeat is short, so that a disconnected agent is noticed within a run.
	heartbeat = 5 * time.Second
	// certificates are renewed many times in a run.
	certificateTTL = 2 * time.Minute
	readyTimeout   = time.Minute
)

// plane is one control plane. Only the wires know where it listens.
type plane struct {
	*harness.Program
	name, number                    string // number is empty if there is only one
	data                            string
	apiAt, tunnelAt, edgeAt, peerAt string
	profilesAt                      string
}

// wire returns the name of a wire that leads only to this control plane.
func (p *plane) wire(name string) string { return name + p.number }

// controlPlanes starts the control planes, with wires to all their listeners. Several control
// planes share database and CA, and their API is behind a load balancer. Each has its own tunnel
// and edge listeners.
func (c *chaos) controlPlanes(ctx context.Context) {
	c.dataFlags(ctx)
	var apis []string
	for i := range c.Planes {
		p := c.newPlane(ctx, i)
		c.planes, apis = append(c.planes, p), append(apis, p.apiAt)
	}
	c.wire(ctx, agentToAPI, apis...)
	c.wire(ctx, runnerToAPI, apis...)
	for _, p := range c.planes {
		p.Program = c.sys.NewProgram(fmt.Sprintf("controlplane%s", strings.TrimSpace(p.number)), c.sys.Binaries.ControlPlane, c.planeArgs(p), nil)
		c.onClose(func(context.Context) error { return p.Close() })
		run.Check(p.Start())
		run.Check(c.awaitPlane(ctx, p))
	}
}

// dataFlags sets the flags for the control planes' storage, for all of their subcommands.
func (c *chaos) dataFlags(ctx context.Context) {
	if c.SQLite {
		return
	}
	c.data = []string{"--database-file", c.urlFile("database-url", c.database.URLOver(c.wires[planeToPostgres].Port()))}
	if c.Planes > 1 {
		key := filepath.Join(c.dir, "ca-key")
		c.data = append(c.data, "--ca-key-file", key)
		run.Must(c.sys.ControlPlane(ctx, "ca", "key", "create", "-o", key))
	}
}

func (c *chaos) newPlane(ctx context.Context, i int) *plane {
	p := &plane{name: planeName, data: c.sys.DataDir()}
	if c.Planes > 1 {
		p.number = fmt.Sprintf(" %d", i+1)
		p.name, p.data = p.wire(p.name), filepath.Join(c.dir, fmt.Sprintf("data-%d", i+1))
	}
	for _, l := range []struct {
		at   *string
		wire string // none for the API, to which a balancer leads, and for profiles
	}{{&p.apiAt, ""}, {&p.profilesAt, ""}, {&p.tunnelAt, agentToTunnel}, {&p.edgeAt, runnerToEdge}, {&p.peerAt, planeToPlane}} {
		*l.at = c.freeAddress(ctx)
		if l.wire != "" && (l.wire != planeToPlane || c.Planes > 1) {
			c.wire(ctx, p.wire(l.wire), *l.at)
		}
	}
	return p
}

func (c *chaos) planeArgs(p *plane) []string {
	own := c.urlFile("broker-url", c.brokerURL(broker.UserControlPlane, planeToBroker))
	runners := c.urlFile("runner-broker-url", c.brokerURL(broker.UserRunner, runnerToBroker))
	args := []string{
		"serve", "--data-dir", p.data, "--log-level", "debug",
		"--api-listen", p.apiAt, "--tunnel-listen", p.tunnelAt, "--edge-listen", p.edgeAt,
		"--advertise-api", "https://" + c.wires[agentToAPI].Addr(), "--advertise-tunnel", c.wires[p.wire(agentToTunnel)].Addr(),
		"--advertise-edge", c.wires[p.wire(runnerToEdge)].Addr(),
		"--broker-url-file", own, "--broker-ca", c.sys.Broker.CAFile(), "--runner-broker-url-file", runners,
		"--heartbeat-interval", heartbeat.String(), "--certificate-ttl", certificateTTL.String(), "--pprof-listen", p.profilesAt,
	}
	if c.Planes > 1 {
		args = append(args, "--peer-listen", p.peerAt, "--advertise-peer", c.wires[p.wire(planeToPlane)].Addr())
	}
	return append(args, c.data...)
}

// awaitPlane waits until a control plane is ready, without using the wires.
func (c *chaos) awaitPlane(ctx context.Context, p *plane) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	return harness.Eventually(ctx, p.name+" is ready", func(ctx context.Context) error {
		if !p.Running() {
			cancel()
			return fmt.Errorf("it ended; its last lines:\n%s", p.LastLines(10))
		}
		_, err := c.operate(ctx, "ready", "--url", "https://"+p.apiAt, "--any-certificate") // as Kubernetes' probes do
		return err
	})
}

// operate runs a subcommand of the control plane on the data itself: control planes are killed.
func (c *chaos) operate(ctx context.Context, args ...string) (string, error) {
	return c.sys.ControlPlane(ctx, append(append(args, "--offline"), c.data...)...)
}

// freeAddress returns an address of this machine below the kernel's ephemeral range, so that no
// outgoing connection takes it while its server is down. It never returns an address twice.
func (c *chaos) freeAddress(ctx context.Context) string {
	port := run.Must(debian.FreePort(ctx, c.given))
	c.given[port] = true
	return fmt.Sprintf("127.0.0.1:%d", port)
}
