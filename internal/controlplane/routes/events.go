package routes

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/discovery"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/hosts"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/wake"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// Events announces which hosts the gateway begins or ceases to serve, in the process that leads.
// The database has what was announced.
type Events struct {
	store *store.Store
	table *gateway.Table
	now   func() time.Time
	log   zerolog.Logger
	wake  wake.Signal
}

// NewEvents returns Events about the hosts of the table.
func NewEvents(s *store.Store, table *gateway.Table, now func() time.Time, log zerolog.Logger) *Events {
	return &Events{store: s, table: table, now: now, log: log, wake: wake.New()}
}

// Look makes Run compare soon: the table may have changed.
func (e *Events) Look() {
	e.wake.Raise()
}

// Run compares until the context ends. The follower of the table wakes it at least every 30
// seconds.
func (e *Events) Run(ctx context.Context) error {
	var announced map[string]string
	for {
		if err := e.Compare(ctx, &announced); err != nil && ctx.Err() == nil {
			announced = nil // read it again
			e.log.Error().Err(err).Msg("failed to announce changes of public hosts; retrying")
		}
		if !e.wake.Wait(ctx) {
			return nil
		}
	}
}

// Compare announces what has changed. announced has the agent of each host that was announced as
// served; nil if that is not known.
func (e *Events) Compare(ctx context.Context, announced *map[string]string) error {
	if !e.table.Known() {
		return nil
	}
	if *announced == nil {
		reading, cancel := context.WithTimeout(ctx, store.Timeout)
		defer cancel()
		known, err := e.store.ServedHosts(reading)
		if err != nil {
			return err
		}
		*announced = known
	}
	served := e.table.Owners()
	changed := map[string]bool{}
	for host, agentID := range served {
		if (*announced)[host] != agentID {
			changed[host] = true
		}
	}
	for host := range *announced {
		if served[host] == "" {
			changed[host] = true
		}
	}
	for _, host := range slices.Sorted(maps.Keys(changed)) {
		if err := e.announce(ctx, host, (*announced)[host], served[host]); err != nil {
			return err
		}
		if (*announced)[host] = served[host]; served[host] == "" {
			delete(*announced, host)
		}
	}
	return nil
}

// announce records that a host is served from another agent than before, or from none.
func (e *Events) announce(ctx context.Context, host, was, is string) error {
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	return e.store.Update(ctx, func(tx *store.Tx) error {
		if was != "" {
			if err := e.write(ctx, tx, announce.RouteSuspended, host, was); err != nil {
				return err
			}
		}
		if is != "" {
			if err := e.write(ctx, tx, announce.RouteServing, host, is); err != nil {
				return err
			}
		}
		return tx.SetServedHost(ctx, host, is)
	})
}

// write announces to Runners that an agent's host is served, or is not. An agent that was removed
// has no news.
func (e *Events) write(ctx context.Context, tx *store.Tx, kind announce.Type, host, agentID string) error {
	agent, err := tx.Agent(ctx, agentID)
	if errors.Is(err, store.ErrNotFound) || err == nil && agent.Revoked() {
		return nil
	}
	if err != nil {
		return err
	}
	about := announce.RouteEvent{Host: host}
	routes, err := tx.RoutesOf(ctx, agentID)
	if err != nil {
		return err
	}
	i := indexOfHost(host, routes)
	if i >= 0 {
		about.Namespace, about.App = routes[i].Namespace, routes[i].App
	}
	if kind == announce.RouteSuspended {
		about.Reason = "the agent has withdrawn the route"
		switch {
		case i >= 0 && !routes[i].Carried():
			about.Reason = routes[i].Reason
		case i >= 0:
			if about.Reason, err = e.reason(ctx, tx, host, agentID); err != nil {
				return err
			}
		}
	}
	now := e.now()
	return discovery.Announce(ctx, tx, agentID, now, func(source string, sequence uint64) (announce.Event, error) {
		return announce.NewRouteEvent(kind, source, agentID, about, sequence, now)
	})
}

// indexOfHost returns the index of a host's route, if possible of one that is carried; -1 if there
// is none.
func indexOfHost(host string, routes []store.Route) int {
	i := slices.IndexFunc(routes, func(r store.Route) bool { return r.Host == host && r.Carried() })
	if i < 0 {
		i = slices.IndexFunc(routes, func(r store.Route) bool { return r.Host == host })
	}
	return i
}

// reason returns why a host is not served from an agent that names it.
func (e *Events) reason(ctx context.Context, tx *store.Tx, host, agentID string) (string, error) {
	claims, err := tx.ClaimsTo(ctx, host)
	if err != nil {
		return "", err
	}
	status := hosts.Status(agentID, host, claims, e.now())
	if status.Served {
		return "the agent was not heard with this route for long", nil
	}
	return status.Reason, nil
}
