package controlplane

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pipeops/pipeops-vm-agent/internal/atomicfile"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway/webcerts"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/hosts"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/tunnel/server"
)

// public has the parts of the gateway.
type public struct {
	table    *gateway.Table
	follower *gateway.Follower
	checker  *hosts.Checker
	keeper   *gateway.Keeper
	certs    *webcerts.Certificates
	gateway  *gateway.Gateway
}

// certificateCheck is how often the files of the operator's certificate are looked at.
const certificateCheck = time.Minute

// openGateway opens the gateway's ports and assembles it, if there is one.
func (c *ControlPlane) openGateway(ctx context.Context) error {
	cfg := c.cfg.Gateway
	if cfg.Domain == "" {
		return nil
	}
	for _, want := range []struct {
		to                *net.Listener
		flag, name, where string
	}{{&c.listeners.https, "--gateway-https", listenerHTTPS, cfg.HTTPSListen}, {&c.listeners.http, "--gateway-http", listenerHTTP, cfg.HTTPListen}} {
		if want.where == "" {
			continue
		}
		ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", want.where)
		if err != nil {
			return fmt.Errorf("%s: %w; free the port or choose another with %[1]s", want.flag, err)
		}
		*want.to = c.cfg.limited(want.name, ln)
	}
	p := &public{table: gateway.NewTable(c.store, c.cfg.Now)}
	var err error
	if p.certs, err = c.certificates(p.table); err != nil {
		return err
	}
	c.public = p
	if err := p.certs.ReadFiles(ctx); err != nil {
		return err
	}
	resolver := &hosts.Resolver{Servers: cfg.Resolvers}
	if len(cfg.Resolvers) == 0 {
		if resolver, err = hosts.SystemResolver(); err != nil {
			return err
		}
	}
	log := c.cfg.Log.With().Str("part", "gateway").Logger()
	names := &agentNames{store: c.store}
	p.keeper = gateway.NewKeeper(gateway.Keeper{Table: p.table, Ensure: p.certs.Ensure, Covered: p.certs.Covered, Metrics: c.instruments.gateway, Log: log})
	p.follower = gateway.NewFollower(gateway.Follower{Table: p.table, Metrics: c.instruments.gateway, Log: log, Refreshed: func(ctx context.Context) {
		names.refresh(ctx)
		p.keeper.Look()
	}})
	p.checker = hosts.NewChecker(hosts.Checker{
		Store: c.store, Resolver: resolver, Domain: cfg.Domain, Now: c.cfg.Now, Log: log, Changed: p.follower.Look,
	})
	httpsPort := cfg.HTTPSPort
	if httpsPort == 0 {
		httpsPort = port(c.listeners.https.Addr())
	}
	p.gateway = gateway.New(gateway.Config{
		Table: p.table, Dial: c.dialPublic, TLS: p.certs.TLS(), Challenge: p.certs.Challenge(), HTTPSPort: httpsPort,
		HSTS: cfg.HSTS, AccessLog: cfg.AccessLog, AgentName: names.of, Metrics: c.instruments.gateway, Log: log,
	})
	c.registry.onRoutes = func() {
		p.checker.Look()
		p.follower.Look()
	}
	return nil
}

// certificates returns the gateway's certificates.
func (c *ControlPlane) certificates(table *gateway.Table) (*webcerts.Certificates, error) {
	cfg := c.cfg.Gateway
	storage, err := gatewayStorage(c.cfg.data(), c.store, c.cfg.Now, true)
	if err != nil {
		return nil, err
	}
	made := webcerts.Config{
		Storage: storage, Directory: cfg.CA, Email: cfg.Email, Roots: cfg.CARoots, HTTPSPort: port(c.listeners.https.Addr()),
		CertFile: cfg.CertFile, KeyFile: cfg.KeyFile, Log: c.cfg.Log.With().Str("part", "gateway").Logger(),
		Allowed: func(host string) bool {
			_, ok := table.Lookup(host)
			return ok
		},
	}
	if c.listeners.http != nil {
		made.HTTPPort = port(c.listeners.http.Addr())
	}
	if cfg.CA == GatewayInternal {
		made.Internal = &webcerts.Internal{Storage: storage, Now: c.cfg.Now}
	}
	return webcerts.New(made), nil
}

// fileGatewayKey is the file with the key that encrypts what the gateway stores, where the CA's key
// is not given.
const fileGatewayKey = "gateway.key"

// gatewayStorage returns where the gateway keeps certificates. Unless create is set, a missing key
// is an error.
func gatewayStorage(data Data, s *store.Store, now func() time.Time, create bool) (*webcerts.Storage, error) {
	key := data.CAKey
	if !key.Given() {
		var err error
		if key, err = gatewayKey(filepath.Join(data.Dir, fileGatewayKey), create); err != nil {
			return nil, err
		}
	}
	return &webcerts.Storage{DB: s, Key: key, Holder: strings.ToLower(rand.Text()), Now: now}, nil
}

func gatewayKey(file string, create bool) (ca.Key, error) {
	text, err := os.ReadFile(file)
	switch {
	case err == nil:
		key, err := ca.ParseKey(string(text))
		if err != nil {
			return key, fmt.Errorf("%s: %w", file, err)
		}
		return key, nil
	case !errors.Is(err, fs.ErrNotExist):
		return ca.Key{}, fmt.Errorf("the gateway's key: %w", err)
	case !create:
		return ca.Key{}, errNoGateway
	}
	key := ca.NewKey()
	return key, atomicfile.Write(file, []byte(key.Text()+"\n"))
}

// dialPublic opens a stream of public traffic to an agent, at whichever control plane has its
// tunnel.
func (c *ControlPlane) dialPublic(ctx context.Context, agentID string) (net.Conn, error) {
	conn, err := c.tunnel.DialPublic(ctx, agentID)
	if c.replicas == nil || !errors.Is(err, server.ErrNotConnected) {
		return conn, err
	}
	return c.replicas.forwarder.dialPublic(ctx, agentID)
}

// serveGateway runs the gateway, if there is one.
func (c *ControlPlane) serveGateway(ctx context.Context, group *errgroup.Group) {
	p := c.public
	if p == nil {
		return
	}
	group.Go(func() error { return p.follower.Run(ctx) })
	group.Go(func() error { return c.leader.while(ctx, p.checker.Run) })
	group.Go(func() error { return c.leader.while(ctx, p.keeper.Run) })
	group.Go(func() error { return p.gateway.Serve(ctx, c.listeners.https, c.listeners.http) })
	group.Go(func() error {
		tick := time.NewTicker(certificateCheck)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
			if err := p.certs.ReadFiles(ctx); err != nil {
				c.cfg.Log.Error().Err(err).Msg("the gateway goes on with the certificate that it has")
			}
		}
	})
}

// lookAtRoutes is called when another process has changed the database.
func (c *ControlPlane) lookAtRoutes() {
	if c.public != nil {
		c.public.follower.Look()
		c.public.checker.Look()
	}
}
