package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/deployments"
	"github.com/pipeops/pipeops-vm-agent/test/bench/run"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
)

// stabilization is short: by default, each round would end with half a minute of waiting for pods
// that have no probe.
const stabilization = "5s"

// agentReplica is one replica of the agent, as a process of this machine with the
// rights of a pod: it can be held and measured, and its way to Kubernetes fail.
type agentReplica struct {
	*harness.Program
	name, profilesAt string
}

// agent starts all replicas and waits until the control plane announces the agent.
func (c *chaos) agent(ctx context.Context) {
	c.wire(ctx, agentToKubernetes, strings.TrimPrefix(c.sys.Kube.Config.Host, "https://"))
	run.Check(c.sys.AgentKubeconfig(ctx, "https://"+c.wires[agentToKubernetes].Addr(), c.kubeconfig()))
	token := strings.TrimSpace(run.Must(c.operate(ctx, "token", "create")))
	for i := range c.Agents {
		a := c.newAgent(ctx, fmt.Sprintf("%s%d", agentPrefix, i+1), token)
		c.agents = append(c.agents, a)
		c.onClose(func(context.Context) error { return a.Close() })
		run.Check(a.Start())
		if err := c.listener.awaitOnline(ctx); err != nil { // the others find the identity that the first one got
			run.Failf("%w; the agent's last lines:\n%s", err, a.LastLines(10))
		}
	}
}

// kubeconfig returns the agent's.
func (c *chaos) kubeconfig() string { return filepath.Join(c.dir, "agent.kubeconfig") }

// newAgent names a replica. Host names distinguish replicas, so each has one of its own, as a pod
// has.
func (c *chaos) newAgent(ctx context.Context, name, token string) *agentReplica {
	_, memory, err := deployments.AgentMemory()
	run.Check(err)
	health, profiles, file := c.freeAddress(ctx), c.freeAddress(ctx), c.urlFile(name+".token", token)
	args := []string{"--uts", "sh", "-c", `hostname "$0" && exec "$@"`, name, c.sys.Binaries.Agent, "run"}
	return &agentReplica{name: name, profilesAt: profiles, Program: c.sys.NewProgram(name, "unshare", args, []string{
		"KUBECONFIG=" + c.kubeconfig(), "AGENT_TOKEN_FILE=" + file, "CLUSTER_NAME=" + agentName, "LOG_LEVEL=debug",
		"PIPEOPS_CONTROL_PLANE_URL=https://" + c.wires[agentToAPI].Addr(), "PIPEOPS_HEALTH_ADDRESS=" + health,
		"PIPEOPS_PPROF_ADDRESS=" + profiles, "GOMEMLIMIT=" + memory, "PIPEOPS_STABILIZATION=" + stabilization,
	})}
}
