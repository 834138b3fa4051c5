package controlplane

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway/webcerts"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

var hostPattern = regexp.MustCompile(`^(\*\.)?[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)+$`)

// GrantHost gives a public host to an agent. DNS is not asked.
func (a *Admin) GrantHost(ctx context.Context, host, nameOrID string) (store.HostGrant, error) {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if !hostPattern.MatchString(host) || len(host) > 253 {
		return store.HostGrant{}, fmt.Errorf("%q is not a host name; for example www.example.com or *.example.com", host)
	}
	agent, err := findAgent(ctx, a.store, nameOrID)
	if err != nil {
		return store.HostGrant{}, err
	}
	g := store.HostGrant{Host: host, AgentID: agent.ID, GrantedAt: a.now()}
	return g, a.store.Update(ctx, func(tx *store.Tx) error { return tx.PutGrant(ctx, g) })
}

// TakeHost takes a host back that was given.
func (a *Admin) TakeHost(ctx context.Context, host string) error {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return a.store.Update(ctx, func(tx *store.Tx) error {
		had, err := tx.DeleteGrant(ctx, host)
		if err == nil && !had {
			err = fmt.Errorf("%s was not granted to any agent; `pipeops-controlplane gateway grants` lists the hosts that were", host)
		}
		return err
	})
}

// HostGrants lists the hosts that were given to agents.
func (a *Admin) HostGrants(ctx context.Context) ([]store.HostGrant, error) {
	return a.store.HostGrants(ctx)
}

// GatewayCA returns the certificate of the gateway's own CA in PEM.
func (a *Admin) GatewayCA(ctx context.Context) ([]byte, error) {
	storage, err := gatewayStorage(a.data, a.store, a.now, false)
	if err != nil {
		return nil, err
	}
	return (&webcerts.Internal{Storage: storage, Now: a.now}).Root(ctx)
}
