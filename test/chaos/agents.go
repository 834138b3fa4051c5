package main

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pipeops/pipeops-vm-agent/test/cluster"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
)

// agentMemory is the soft limit of memory that deployments/agent.yaml sets.
const agentMemory = "116MiB"

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
func (c *chaos) agent(ctx context.Context) error {
	server := strings.TrimPrefix(c.sys.Kube.Config.Host, "https://")
	if err := c.wire(ctx, agentToKubernetes, server); err != nil {
		return err
	}
	if err := c.sys.AgentKubeconfig(ctx, "https://"+c.wires[agentToKubernetes].Addr(), c.kubeconfig()); err != nil {
		return err
	}
	token, err := c.operate(ctx, "token", "create")
	if err != nil {
		return err
	}
	for i := range c.Agents {
		a, err := c.newAgent(ctx, fmt.Sprintf("%s%d", agentPrefix, i+1), strings.TrimSpace(token))
		if err != nil {
			return err
		}
		c.agents = append(c.agents, a)
		c.onClose(func(context.Context) error { return a.Close() })
		if err := a.Start(); err != nil {
			return err
		}
		if err := c.listener.awaitOnline(ctx); err != nil { // the others find the identity that the first one got
			return fmt.Errorf("%w; the agent's last lines:\n%s", err, a.LastLines(10))
		}
	}
	return nil
}

// kubeconfig returns the agent's.
func (c *chaos) kubeconfig() string { return filepath.Join(c.dir, "agent.kubeconfig") }

// newAgent names a replica. Host names distinguish replicas, so each has one of its own, as a pod
// has.
func (c *chaos) newAgent(ctx context.Context, name, token string) (*agentReplica, error) {
	health, err := c.freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	profiles, err := c.freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	file, err := c.urlFile(name+".token", token)
	if err != nil {
		return nil, err
	}
	args := []string{"--uts", "sh", "-c", `hostname "$0" && exec "$@"`, name, c.sys.Binaries.Agent, "run"}
	return &agentReplica{name: name, profilesAt: profiles, Program: c.sys.NewProgram(name, "unshare", args, []string{
		"KUBECONFIG=" + c.kubeconfig(), "AGENT_TOKEN_FILE=" + file, "CLUSTER_NAME=" + agentName, "LOG_LEVEL=debug",
		"PIPEOPS_CONTROL_PLANE_URL=https://" + c.wires[agentToAPI].Addr(), "PIPEOPS_HEALTH_ADDRESS=" + health,
		"PIPEOPS_PPROF_ADDRESS=" + profiles, "GOMEMLIMIT=" + agentMemory, "PIPEOPS_STABILIZATION=" + stabilization,
	})}, nil
}

// simulatePods sends the pods of the Apps to nodes that do not exist.
func (c *chaos) simulatePods(ctx context.Context) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": cluster.Simulate()}})
	if err != nil {
		return err
	}
	_, err = c.sys.Kube.Clientset.CoreV1().Namespaces().Patch(ctx, namespace, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}
