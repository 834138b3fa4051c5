package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/test/broker"
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
func (c *chaos) controlPlanes(ctx context.Context) error {
	if err := c.dataFlags(ctx); err != nil {
		return err
	}
	var apis []string
	for i := range c.Planes {
		p, err := c.newPlane(ctx, i)
		if err != nil {
			return err
		}
		c.planes, apis = append(c.planes, p), append(apis, p.apiAt)
	}
	if err := errors.Join(c.wire(ctx, agentToAPI, apis...), c.wire(ctx, runnerToAPI, apis...)); err != nil {
		return err
	}
	for _, p := range c.planes {
		args, err := c.planeArgs(p)
		if err != nil {
			return err
		}
		p.Program = c.sys.NewProgram(fmt.Sprintf("controlplane%s", strings.TrimSpace(p.number)), c.sys.Binaries.ControlPlane, args, nil)
		c.onClose(func(context.Context) error { return p.Close() })
		if err := p.Start(); err != nil {
			return err
		}
		if err := c.awaitPlane(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// dataFlags sets the flags for the control planes' storage, for all of their subcommands.
func (c *chaos) dataFlags(ctx context.Context) error {
	if c.SQLite {
		return nil
	}
	url, err := c.urlFile("database-url", c.database.URLOver(c.wires[planeToPostgres].Port()))
	if err != nil {
		return err
	}
	c.data = []string{"--database-file", url}
	if c.Planes == 1 {
		return nil
	}
	key := filepath.Join(c.dir, "ca-key")
	c.data = append(c.data, "--ca-key-file", key)
	_, err = c.sys.ControlPlane(ctx, "ca", "key", "create", "-o", key)
	return err
}

func (c *chaos) newPlane(ctx context.Context, i int) (*plane, error) {
	p := &plane{name: planeName, data: c.sys.DataDir()}
	if c.Planes > 1 {
		p.number = fmt.Sprintf(" %d", i+1)
		p.name, p.data = p.wire(p.name), filepath.Join(c.dir, fmt.Sprintf("data-%d", i+1))
	}
	for _, l := range []struct {
		at   *string
		wire string // none for the API, to which a balancer leads, and for profiles
	}{{&p.apiAt, ""}, {&p.profilesAt, ""}, {&p.tunnelAt, agentToTunnel}, {&p.edgeAt, runnerToEdge}, {&p.peerAt, planeToPlane}} {
		var err error
		if *l.at, err = c.freeAddress(ctx); err != nil {
			return nil, err
		}
		if l.wire == "" || l.wire == planeToPlane && c.Planes == 1 {
			continue
		}
		if err := c.wire(ctx, p.wire(l.wire), *l.at); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (c *chaos) planeArgs(p *plane) ([]string, error) {
	own, err := c.urlFile("broker-url", c.brokerURL(broker.UserControlPlane, planeToBroker))
	if err != nil {
		return nil, err
	}
	runners, err := c.urlFile("runner-broker-url", c.brokerURL(broker.UserRunner, runnerToBroker))
	if err != nil {
		return nil, err
	}
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
	return append(args, c.data...), nil
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
func (c *chaos) freeAddress(ctx context.Context) (string, error) {
	for port := 20000 + time.Now().UnixNano()%10000; port < 32000; port++ {
		at := fmt.Sprintf("127.0.0.1:%d", port)
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", at) // for a moment
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			return "", err
		}
		if !slices.Contains(c.given, at) {
			c.given = append(c.given, at)
			return at, nil
		}
	}
	return "", errors.New("found no free port on this machine")
}
