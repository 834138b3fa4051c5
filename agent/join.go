package agent

import (
	"context"
	"net"

	"github.com/pipeops/pipeops-vm-agent/agent/config"
	"github.com/pipeops/pipeops-vm-agent/internal/kube"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// k3sPort is where a server of k3s is joined.
const k3sPort = "6443"

// joins implements the calls about joining workers.
type joins struct {
	kube   *kube.Client
	config config.Config
}

// JoinCommand implements backend.Joins. If K3S_URL is set, workers must join that server;
// otherwise they join a server of the cluster.
func (j joins) JoinCommand(ctx context.Context) (runnerapi.JoinCommand, error) {
	address, version, err := j.kube.K3sServer(ctx)
	if err != nil {
		return runnerapi.JoinCommand{}, err
	}
	server := j.config.K3sURL
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

// JoinToken implements backend.Joins. The agent has only what it was given.
func (j joins) JoinToken(context.Context) (runnerapi.JoinToken, error) {
	token := j.config.K3sToken
	if token == "" {
		return runnerapi.JoinToken{}, runnerapi.NotSupported("set K3S_TOKEN for the agent, or read the token on the server: sudo cat /var/lib/rancher/k3s/server/node-token",
			"the agent was given no token of k3s")
	}
	return runnerapi.JoinToken{Token: token}, nil
}
