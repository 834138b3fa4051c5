package datadir

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ports"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/rabbitmq"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
)

// The domains of certificates where none are given.
const (
	DefaultAgentsDomain = "agents.pipeops.internal"
	DefaultTrustDomain  = "pipeops.internal"
)

// settingAdvertised is where serve leaves for the other subcommands what it is
// reached at.
const settingAdvertised = "advertised"

// Advertised is what agents, Runners and commands need to know about a control plane.
type Advertised struct {
	API          string       `json:"api"`
	Tunnel       string       `json:"tunnel"`
	Edge         string       `json:"edge"`
	AgentsDomain string       `json:"agentsDomain"`
	TrustDomain  string       `json:"trustDomain"`
	RunnerBroker RunnerBroker `json:"runnerBroker,omitzero"`
	// GatewayDomain is empty if there is no gateway.
	GatewayDomain string `json:"gatewayDomain,omitempty"`
	// GatewayTCPPorts and GatewayUDPPorts are the ports that Apps may have.
	GatewayTCPPorts string `json:"gatewayTCPPorts,omitempty"`
	GatewayUDPPorts string `json:"gatewayUDPPorts,omitempty"`
}

// OpenPorts returns the ports that Apps may have.
func (a Advertised) OpenPorts() (open ports.Open, err error) {
	if err = open.TCP.Set(a.GatewayTCPPorts); err == nil {
		err = open.UDP.Set(a.GatewayUDPPorts)
	}
	return open, err
}

// ErrNeverServed means that serve has not run with this data directory yet.
var ErrNeverServed = errors.New("this data directory has not been served yet; run `pipeops-controlplane serve --data-dir DIR` with it first")

// LoadAdvertised reads what serve has stored, or returns ErrNeverServed.
func LoadAdvertised(ctx context.Context, s *store.Store) (Advertised, error) {
	var a Advertised
	settings, err := s.Settings(ctx)
	if err != nil {
		return a, err
	}
	text, ok := settings[settingAdvertised]
	if !ok {
		return a, ErrNeverServed
	}
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		return a, fmt.Errorf("database: setting %s: %w", settingAdvertised, err)
	}
	return a, nil
}

// SaveAdvertised stores it for the other subcommands.
func SaveAdvertised(ctx context.Context, s *store.Store, a Advertised) error {
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	return s.PutSetting(ctx, settingAdvertised, string(text))
}

// CheckDomains refuses to change what is in every certificate while there are
// agents that hold one.
func CheckDomains(ctx context.Context, s *store.Store, now Advertised) error {
	before, err := LoadAdvertised(ctx, s)
	if errors.Is(err, ErrNeverServed) {
		return nil
	}
	if err != nil {
		return err
	}
	if before.AgentsDomain == now.AgentsDomain && before.TrustDomain == now.TrustDomain {
		return nil
	}
	agents, err := s.Agents(ctx)
	if err != nil || len(agents) == 0 {
		return err
	}
	return fmt.Errorf("%d agents hold certificates for the agents domain %s and the trust domain %s, which cannot be changed to %s and %s; "+
		"use the old ones, or a new data directory", len(agents), before.AgentsDomain, before.TrustDomain, now.AgentsDomain, now.TrustDomain)
}

// Read reads the broker's part of the credentials from the files.
func (b RunnerBroker) Read() (credentials.Broker, error) {
	var c credentials.Broker
	for to, file := range map[*string]string{&c.URL: b.URLFile, &c.CA: b.CAFile} {
		if file == "" {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return c, fmt.Errorf("what Runners need to reach the broker: %w; correct --broker-url-file, or --runner-broker-url-file or --broker-ca of `pipeops-controlplane serve`", err)
		}
		*to = strings.TrimSpace(string(text))
	}
	if c.URL != "" { // the file may have changed since serve has checked it
		if err := rabbitmq.CheckURLs(strings.Split(c.URL, ",")); err != nil {
			return c, fmt.Errorf("what Runners need to reach the broker: %s: %w; correct the file", b.URLFile, err)
		}
	}
	return c, nil
}

// RunnerBroker names the files from which `runner create` takes what a Runner needs to reach the
// broker. The secret stays in its file.
type RunnerBroker struct {
	URLFile string `json:"urlFile,omitempty"`
	CAFile  string `json:"caFile,omitempty"`
}
