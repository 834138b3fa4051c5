package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
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
}

// ErrNeverServed means that serve has not run with this data directory yet.
var ErrNeverServed = errors.New("this data directory has not been served yet; run `pipeops-controlplane serve --data-dir DIR` with it first")

func loadAdvertised(ctx context.Context, s *store.Store) (Advertised, error) {
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

func saveAdvertised(ctx context.Context, s *store.Store, a Advertised) error {
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	return s.PutSetting(ctx, settingAdvertised, string(text))
}

// checkDomains refuses to change what is in every certificate while there are
// agents that hold one.
func checkDomains(ctx context.Context, s *store.Store, now Advertised) error {
	before, err := loadAdvertised(ctx, s)
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
