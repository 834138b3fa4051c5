package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"time"

	"github.com/pipeops/pipeops-vm-agent/test/broker"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
)

// The wires, by who calls whom.
const (
	agentToAPI        = "agent to API"
	agentToTunnel     = "agent to tunnel"
	agentToKubernetes = "agent to Kubernetes"
	runnerToAPI       = "Runner to API"
	runnerToEdge      = "Runner to edge"
	runnerToBroker    = "Runner to broker"
	planeToBroker     = "control plane to broker"
	planeToPostgres   = "control plane to PostgreSQL"
)

const (
	// heartbeat is short, so that an agent that is cut off is noticed within a run.
	heartbeat = 5 * time.Second
	// certificates are renewed many times in a run.
	certificateTTL = 2 * time.Minute
	readyTimeout   = time.Minute
)

// plane is one control plane. Where it listens nobody knows but the wires.
type plane struct {
	*harness.Program
	name                    string
	data                    string
	apiAt, tunnelAt, edgeAt string
	database                []string // flags, for subcommands too
}

// controlPlane starts the control plane, with wires to all its listeners.
func (c *chaos) controlPlane(ctx context.Context) error {
	p, err := c.newPlane(ctx, "control plane")
	if err != nil {
		return err
	}
	c.planes = append(c.planes, p)
	c.onClose(func(context.Context) error { return p.Close() })
	if err := p.Start(); err != nil {
		return err
	}
	return c.awaitPlane(ctx, p)
}

func (c *chaos) newPlane(ctx context.Context, name string) (*plane, error) {
	p := &plane{name: name, data: c.sys.DataDir()}
	for at, wires := range map[*string][]string{
		&p.apiAt: {agentToAPI, runnerToAPI}, &p.tunnelAt: {agentToTunnel}, &p.edgeAt: {runnerToEdge},
	} {
		var err error
		if *at, err = freeAddress(ctx); err != nil {
			return nil, err
		}
		for _, w := range wires {
			if err := c.wire(ctx, w, *at); err != nil {
				return nil, err
			}
		}
	}
	args, err := c.planeArgs(p)
	if err != nil {
		return nil, err
	}
	p.Program = c.sys.NewProgram("controlplane", c.sys.Binaries.ControlPlane, args, nil)
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
	if !c.SQLite {
		url, err := c.urlFile("database-url", c.database.URLOver(c.wires[planeToPostgres].Port()))
		if err != nil {
			return nil, err
		}
		p.database = []string{"--database-file", url}
	}
	return slices.Concat([]string{
		"serve", "--data-dir", p.data, "--log-level", "debug",
		"--api-listen", p.apiAt, "--tunnel-listen", p.tunnelAt, "--edge-listen", p.edgeAt,
		"--advertise-api", "https://" + c.wires[agentToAPI].Addr(), "--advertise-tunnel", c.wires[agentToTunnel].Addr(),
		"--advertise-edge", c.wires[runnerToEdge].Addr(),
		"--broker-url-file", own, "--broker-ca", c.sys.Broker.CAFile(), "--runner-broker-url-file", runners,
		"--heartbeat-interval", heartbeat.String(), "--certificate-ttl", certificateTTL.String(),
	}, p.database), nil
}

// awaitPlane waits until a control plane says that it is ready, past all wires.
func (c *chaos) awaitPlane(ctx context.Context, p *plane) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	return harness.Eventually(ctx, p.name+" is ready", func(ctx context.Context) error {
		if !p.Running() {
			cancel()
			return fmt.Errorf("it ended; its last lines:\n%s", p.LastLines(10))
		}
		_, err := harness.Readiness(ctx, "https://"+p.apiAt, filepath.Join(p.data, "ca.pem"))
		return err
	})
}

// operate runs a subcommand of the control plane, as its operator.
func (c *chaos) operate(ctx context.Context, args ...string) (string, error) {
	return c.sys.ControlPlane(ctx, append(args, c.planes[0].database...)...)
}

// freeAddress is one of this machine below the kernel's ephemeral range, so that an
// outgoing connection does not take it while nobody listens.
func freeAddress(ctx context.Context) (string, error) {
	for port := 20000 + time.Now().UnixNano()%10000; port < 32000; port++ {
		at := fmt.Sprintf("127.0.0.1:%d", port)
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", at) // for a moment
		if err == nil {
			return at, l.Close()
		}
	}
	return "", errors.New("found no free port on this machine")
}
