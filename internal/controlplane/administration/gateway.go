package administration

import (
	"context"
	"regexp"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway/webcerts"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/routes"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

var hostPattern = regexp.MustCompile(`^(\*\.)?[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)+$`)

// Grant gives a public host to an agent. DNS is not asked.
func (a *Gateway) Grant(ctx context.Context, host, nameOrID string) (store.HostGrant, error) {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if !hostPattern.MatchString(host) || len(host) > 253 {
		return store.HostGrant{}, invalid("write it as www.example.com or *.example.com", "%q is not a host name", host)
	}
	agent, err := findAgent(ctx, a.store, nameOrID)
	if err != nil {
		return store.HostGrant{}, err
	}
	g := store.HostGrant{Host: host, AgentID: agent.ID, GrantedAt: a.now()}
	return g, a.store.Update(ctx, func(tx *store.Tx) error { return tx.PutGrant(ctx, g) })
}

// Take takes a host back that was given.
func (a *Gateway) Take(ctx context.Context, host string) error {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return a.store.Update(ctx, func(tx *store.Tx) error {
		had, err := tx.DeleteGrant(ctx, host)
		if err == nil && !had {
			err = missing("`pipeops-controlplane gateway grant list` lists the hosts that were", "%s was not granted to any agent", host)
		}
		return err
	})
}

// Grants lists the hosts that were given to agents.
func (a *Gateway) Grants(ctx context.Context) ([]store.HostGrant, error) {
	return a.store.HostGrants(ctx)
}

// CA returns the certificate of the gateway's own CA in PEM.
func (a *Gateway) CA(ctx context.Context) ([]byte, error) {
	storage, err := datadir.GatewayStorage(a.data, a.store, a.now)
	if err != nil {
		return nil, err
	}
	return (&webcerts.Internal{Storage: storage, Now: a.now}).Root(ctx)
}

// Routes returns the routes of an agent, or of all if the name is empty.
func (a *Gateway) Routes(ctx context.Context, nameOrID string) (routes.List, error) {
	at, err := a.advertisedYet(ctx)
	if err != nil {
		return routes.List{}, err
	}
	open, err := at.OpenPorts()
	if err != nil {
		return routes.List{}, err
	}
	if nameOrID == "" {
		return routes.Of(ctx, a.store, "", open, a.now())
	}
	found, err := findAgent(ctx, a.store, nameOrID)
	if err != nil {
		return routes.List{}, err
	}
	return routes.Of(ctx, a.store, found.ID, open, a.now())
}
