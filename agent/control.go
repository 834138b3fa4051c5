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
)

// firstContact makes the client for registration. The token's fingerprint, a CA
// file or the system's roots say who is to be believed; the last is remembered.
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
	client, err = a.newClient(func() *tls.Config { return cfg })
	return client, token.Fingerprint == "" && roots == nil, err
}

// client makes the client for everything after registration. It follows the
// identity: a renewed certificate is used at the next connection.
func (a *Agent) client() (*controlapi.Client, error) {
	extra, err := a.opts.Config.CAPool()
	if err != nil {
		return nil, err
	}
	var (
		mu  sync.Mutex
		of  *identity.Identity
		cfg *tls.Config
	)
	return a.newClient(func() *tls.Config {
		mu.Lock()
		defer mu.Unlock()
		if id := a.current.Load(); id != of {
			of, cfg = id, id.ControlPlaneTLS(extra)
			cfg.Time = a.now
		}
		return cfg
	})
}

func (a *Agent) newClient(source func() *tls.Config) (*controlapi.Client, error) {
	proxy := proxyFunc()
	return controlapi.NewClient(controlapi.ClientConfig{
		URL: a.opts.Config.ControlPlaneURL, TLS: source, Log: a.log, Now: a.now, Origin: a.origin,
		Proxy: func(r *http.Request) (*url.URL, error) { return proxy(r.URL) },
	})
}

// proxyFunc follows HTTPS_PROXY and NO_PROXY, for HTTPS and FRP alike.
func proxyFunc() func(*url.URL) (*url.URL, error) { return httpproxy.FromEnvironment().ProxyFunc() }

// passing says whether the control plane may answer otherwise later without
// anybody changing anything.
func passing(err error) bool {
	var e *controlapi.Error
	return !errors.As(err, &e) || e.Passing()
}
