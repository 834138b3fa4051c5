package agent

import (
	"crypto/tls"
	"errors"
	"net/http"
	"net/url"
	"sync"

	"golang.org/x/net/http/httpproxy"

	"github.com/pipeops/pipeops-vm-agent/agent/identity"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
)

// firstContact returns the client for registration. The token's fingerprint, a CA file or the
// system's roots decide which server is trusted; systemRoots reports the last case.
func (a *Agent) firstContact(token controlapi.Token) (client *controlapi.Client, systemRoots bool, err error) {
	roots, err := a.opts.Config.CAPool()
	if err != nil {
		return nil, false, err
	}
	trust := controlapi.Trust{Fingerprint: token.Fingerprint, Roots: roots, Now: a.now}
	cfg, err := trust.TLSConfig(a.opts.Config.ControlPlaneURL)
	if err != nil {
		return nil, false, err
	}
	client, err = a.newClient(func() *tls.Config { return cfg }, nil)
	return client, token.Fingerprint == "" && roots == nil, err
}

// client returns the client for everything after registration. It follows the identity: a renewed
// certificate is used for the next connection, and with the next call.
func (a *Agent) client(tun *tunnel.Set) (*controlapi.Client, error) {
	source, err := a.controlPlaneTLS()
	if err != nil {
		return nil, err
	}
	return a.newClient(source, tun)
}

// controlPlaneTLS returns the TLS configuration for the HTTPS API, whose certificate may come from
// another CA.
func (a *Agent) controlPlaneTLS() (func() *tls.Config, error) {
	extra, err := a.opts.Config.CAPool()
	if err != nil {
		return nil, err
	}
	return a.following(func(id *identity.Identity) *tls.Config { return id.ControlPlaneTLS(extra) }), nil
}

// following returns the TLS configuration for the current identity. It returns the same pointer for
// as long as certificate and CAs are the same, even if other parts change.
func (a *Agent) following(of func(*identity.Identity) *tls.Config) func() *tls.Config {
	var (
		mu   sync.Mutex
		made *identity.Identity
		cfg  *tls.Config
	)
	return func() *tls.Config {
		mu.Lock()
		defer mu.Unlock()
		if id := a.current.Load(); !id.Same(made) || id.CABundle != made.CABundle {
			made, cfg = id, of(id)
			cfg.Time = a.now
		}
		return cfg
	}
}

func (a *Agent) newClient(source func() *tls.Config, streams controlapi.Streams) (*controlapi.Client, error) {
	proxy := proxyFunc()
	return controlapi.NewClient(controlapi.ClientConfig{
		URL: a.opts.Config.ControlPlaneURL, TLS: source, Log: a.log, Now: a.now, Origin: a.origin, Streams: streams,
		Proxy: func(r *http.Request) (*url.URL, error) { return proxy(r.URL) },
	})
}

// proxyFunc follows HTTPS_PROXY and NO_PROXY, for HTTPS and FRP alike.
func proxyFunc() func(*url.URL) (*url.URL, error) { return httpproxy.FromEnvironment().ProxyFunc() }

// passing reports whether the control plane may answer differently later without a change by the
// operator.
func passing(err error) bool {
	var e *controlapi.Error
	return !errors.As(err, &e) || e.Passing()
}
