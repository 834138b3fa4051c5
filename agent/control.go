package agent

import (
	"crypto/tls"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/agent/config"
	"github.com/pipeops/pipeops-vm-agent/agent/identity"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/proxy"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
)

// clients makes clients of the control plane's HTTPS API.
type clients struct {
	config  config.Config
	now     func() time.Time
	log     zerolog.Logger
	cluster *clusterID
	current *currentIdentity
}

// firstContact returns the client for registration. The token's fingerprint, a CA file or the
// system's roots decide which server is trusted; systemRoots reports the last case.
func (c *clients) firstContact(token controlapi.Token) (client *controlapi.Client, systemRoots bool, err error) {
	roots, err := c.config.CAPool()
	if err != nil {
		return nil, false, err
	}
	trust := controlapi.Trust{Fingerprint: token.Fingerprint, Roots: roots, Now: c.now}
	cfg, err := trust.TLSConfig(c.config.ControlPlaneURL)
	if err != nil {
		return nil, false, err
	}
	client, err = c.client(func() *tls.Config { return cfg }, nil)
	return client, token.Fingerprint == "" && roots == nil, err
}

// registered returns the client for everything after registration. It follows the identity: a
// renewed certificate is used for the next connection, and with the next call.
func (c *clients) registered(tun *tunnel.Set) (*controlapi.Client, error) {
	source, err := c.tls()
	if err != nil {
		return nil, err
	}
	return c.client(source, tun)
}

// tls returns the TLS configuration for the HTTPS API, whose certificate may come from
// another CA.
func (c *clients) tls() (func() *tls.Config, error) {
	extra, err := c.config.CAPool()
	if err != nil {
		return nil, err
	}
	return c.current.following(func(id *identity.Identity) *tls.Config { return id.ControlPlaneTLS(extra) }), nil
}

func (c *clients) client(source func() *tls.Config, streams controlapi.Streams) (*controlapi.Client, error) {
	return controlapi.NewClient(controlapi.ClientConfig{
		URL: c.config.ControlPlaneURL, TLS: source, Log: c.log, Now: c.now, Origin: c.cluster.origin, Streams: streams,
		Proxy: proxy.FromEnvironment(),
	})
}
