package login

import (
	"os"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
)

// EnvironmentExchange returns what a job's variables say about the exchange of its ID token.
func EnvironmentExchange() Exchange {
	return Exchange{
		ControlPlane: os.Getenv(EnvControlPlane), Runner: os.Getenv(EnvRunner), Fingerprint: os.Getenv(EnvFingerprint),
		Audience: os.Getenv(EnvAudience), Token: EnvironmentToken(),
	}
}

// Reach returns the configuration of a client for an agent. An agent without endpoints was never
// online: its edge is that of the credentials.
func (l *Login) Reach(agent announce.Agent) client.Config {
	creds := l.Credentials()
	config := client.Config{
		AgentID: agent.ID, ServerName: agent.ID + "." + creds.AgentsDomain, EdgeAddresses: []string{creds.Edge},
		TrustDomain: creds.TrustDomain, Roots: l.Roots(), Certificate: l.Certificate,
	}
	for i, e := range agent.Endpoints {
		if i == 0 {
			config.EdgeAddresses = nil
		}
		config.ServerName = e.ServerName
		config.EdgeAddresses = append(config.EdgeAddresses, e.Address)
	}
	return config
}
