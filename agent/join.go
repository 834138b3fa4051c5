package agent

import (
	"context"
	"net"

	"github.com/pipeops/pipeops-vm-agent/agent/config"
	"github.com/pipeops/pipeops-vm-agent/internal/kube"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
)

// k3sPort is where a server of k3s is joined.
const k3sPort = "6443"

// nodeCalls are the cluster's nodes, and how a machine becomes one.
type nodeCalls struct {
	kube.Nodes
	config config.Config
}

var _ backend.Nodes = nodeCalls{}

// JoinCommand implements backend.Nodes. If K3S_URL is set, workers must join that server;
// otherwise they join a server of the cluster.
func (n nodeCalls) JoinCommand(ctx context.Context) (runnerapi.JoinCommand, error) {
	address, version, err := n.K3sServer(ctx)
	if err != nil {
		return runnerapi.JoinCommand{}, err
	}
	server := n.config.K3sURL
	switch {
	case server == "" && version == "":
		return runnerapi.JoinCommand{}, runnerapi.NotSupported("add nodes in the way of that cluster's own; where it is k3s all the same, set K3S_URL for the agent",
			"the cluster is not k3s: no server of it is among its nodes")
	case server == "" && address == "":
		return runnerapi.JoinCommand{}, runnerapi.NotSupported("set K3S_URL for the agent", "the server of k3s has no internal address")
	case server == "":
		server = "https://" + net.JoinHostPort(address, k3sPort)
	}
	return runnerapi.JoinCommand{Server: server, Version: version, Command: `bash join-worker.sh ` + server + ` - <<<"$K3S_TOKEN"`}, nil
}

// JoinToken implements backend.Nodes. The agent has only what it was given.
func (n nodeCalls) JoinToken(context.Context) (runnerapi.JoinToken, error) {
	token := n.config.K3sToken
	if token == "" {
		return runnerapi.JoinToken{}, runnerapi.NotSupported("set K3S_TOKEN for the agent, or read the token on the server: sudo cat /var/lib/rancher/k3s/server/node-token",
			"the agent was given no token of k3s")
	}
	return runnerapi.JoinToken{Token: token}, nil
}
