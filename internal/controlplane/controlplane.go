package controlplane

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/agents"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/authn"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/castore"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/discovery"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/enrolment"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/liveness"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/outbox"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/peers"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/receiver"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/routes"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/visitors"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/webhook"
	"github.com/pipeops/pipeops-vm-agent/internal/idtoken"
	"github.com/pipeops/pipeops-vm-agent/internal/metrics"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/internal/web/console"
)

// ControlPlane is a whole control plane in one process. New creates one, Run runs it.
type ControlPlane struct {
	cfg         Config
	lock        *datadir.Lock
	store       *store.Store
	ca          *ca.CA
	certificate *ca.ServerCertificate
	authn       *authn.Authenticator
	liveness    *liveness.Liveness
	fleet       *agents.Fleet
	enrolment   *enrolment.Registrar
	routes      *routes.Registry
	directory   discovery.Directory
	clones      *agents.Clones
	view        *discovery.View
	shared      *liveness.Shared // nil if there is only one control plane
	tunnels     *tunnels
	api         *api
	health      *health
	refresher   *agents.Refresher
	receivers   *receiver.Receivers
	outbox      *outbox.Outbox
	broker      *outbox.Broker // nil if there is none
	webhooks    *webhook.Dispatcher
	instruments *instruments
	ports       *metrics.Ports
	listeners   listeners
	leader      *peers.Leader
	peers       *peers.Peers // nil if there is only one control plane
	public      *public      // nil if there is no gateway
	upkeep      *castore.Upkeep
	operators   *operatorapi.Server
	issuers     *idtoken.Issuers
	visitors    *visitors.Visitors
	local       localAPI
	console     *console.Console

	startedAt time.Time

	serving atomic.Bool
	closing sync.Once
	closed  error
}

// New opens the data directory, the database and the ports. Call Close if Run is not called.
func New(ctx context.Context, cfg Config) (*ControlPlane, error) {
	cfg.setDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return awaitDatabase(ctx, cfg.Log, func() (*ControlPlane, error) { return open(ctx, cfg) })
}

// Run serves until the context ends, waits for everything that it started, and closes what New
// opened.
func (c *ControlPlane) Run(ctx context.Context) error {
	err := c.start(ctx)
	if err == nil {
		err = c.serve(ctx)
	}
	return errors.Join(retry.UnlessDone(ctx, err), c.Close())
}

// Close closes what New opened. Run calls it; another call is harmless.
func (c *ControlPlane) Close() error {
	c.closing.Do(func() {
		errs := []error{c.ports.Close(), c.listeners.close()}
		if socket := c.local.socket; socket != nil {
			if err := socket.Close(); !errors.Is(err, net.ErrClosed) {
				errs = append(errs, err)
			}
		}
		if c.operators != nil {
			errs = append(errs, c.operators.Close())
		}
		if c.public != nil {
			c.public.certs.Close()
		}
		if c.store != nil {
			errs = append(errs, c.store.Close())
		}
		if c.lock != nil {
			errs = append(errs, c.lock.Release())
		}
		c.closed = errors.Join(errs...)
	})
	return c.closed
}
