package harness

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/test/contract/checked"
)

// violated notes an answer that breaks the Runner API's document.
func (s *System) violated(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.violations = append(s.violations, err)
}

// Violations returns the answers to clients of Dial that broke the Runner API's document. The calls
// have failed as well.
func (s *System) Violations() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.violations...)
}

// Dial returns a client of an agent's Runner API, as the Runner of that name. Its calls go over the
// edge and through the tunnel.
func (s *System) Dial(ctx context.Context, runner, agentName string) (*client.Client, error) {
	creds, err := credentials.Load(s.RunnerCredentials(runner))
	if err != nil {
		return nil, err
	}
	cert, err := creds.TLSCertificate()
	if err != nil {
		return nil, err
	}
	roots, err := creds.Roots()
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: roots, Certificates: []tls.Certificate{cert},
	}}
	defer transport.CloseIdleConnections()
	control := announce.SnapshotClient{BaseURL: creds.ControlPlane, HTTPClient: &http.Client{Transport: transport}}
	agent, err := control.Agent(ctx, agentName)
	if err != nil {
		return nil, err
	}
	if len(agent.Endpoints) == 0 {
		return nil, fmt.Errorf("agent %s has no endpoint: it is %s", agentName, agent.State)
	}
	config := client.Config{
		AgentID: agent.ID, ServerName: agent.Endpoints[0].ServerName, TrustDomain: creds.TrustDomain, Roots: roots,
		Certificate: func() (*tls.Certificate, error) { return &cert, nil },
		Around:      checked.Reporting(s.violated),
	}
	for _, e := range agent.Endpoints {
		config.EdgeAddresses = append(config.EdgeAddresses, e.Address)
	}
	return client.New(config)
}
