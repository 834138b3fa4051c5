package controlplane

import (
	"crypto/x509"
	"errors"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/metrics"
)

// The defaults of GatewayConfig.
const (
	DefaultGatewayHTTPS = ":443"
	DefaultGatewayHTTP  = ":80"
	// GatewayInternal as the CA is one of the gateway's own.
	GatewayInternal = "internal"
	// DefaultGatewayCA is the directory of Let's Encrypt.
	DefaultGatewayCA = "https://acme-v02.api.letsencrypt.org/directory"
)

// GatewayConfig configures the gateway, through which the public reaches Apps. Without a Domain
// there is none.
type GatewayConfig struct {
	// Domain is below which Apps have hosts without further ado.
	Domain string
	// HTTPSListen and HTTPListen are where it listens. An empty HTTPListen means no plain HTTP.
	HTTPSListen, HTTPListen string
	// HTTPSPort is the port at which visitors reach HTTPSListen; 0 if it is the same.
	HTTPSPort int
	// CA is the URL of an ACME directory, or GatewayInternal.
	CA string
	// Email is the contact of the ACME account, and CARoots verify the ACME CA itself; nil for the
	// machine's.
	Email   string
	CARoots *x509.CertPool
	// CertFile and KeyFile are a certificate of the operator's, such as a wildcard for Domain.
	CertFile, KeyFile string
	// Resolvers are the DNS servers that are asked for proofs of hosts, host:port; none means the
	// machine's.
	Resolvers []string
	// HSTS is for how long browsers are asked to use HTTPS alone.
	HSTS time.Duration
	// AccessLog logs each request.
	AccessLog bool
}

func (g *GatewayConfig) setDefaults() {
	if g.Domain == "" {
		return
	}
	if g.HTTPSListen == "" {
		g.HTTPSListen = DefaultGatewayHTTPS
	}
	if g.CA == "" {
		g.CA = DefaultGatewayCA
	}
}

func (g *GatewayConfig) validate(bad func(format string, args ...any)) {
	if g.Domain == "" {
		if g.CertFile != "" || g.KeyFile != "" || g.CARoots != nil {
			bad("--gateway-domain: is missing; name the domain of public Apps, or leave the other gateway flags out")
		}
		return
	}
	if !domainPattern.MatchString(g.Domain) || len(g.Domain) > 180 || !strings.Contains(g.Domain, ".") {
		bad("--gateway-domain: %q is not a domain name in lower case with a dot; for example apps.example.com", g.Domain)
	}
	for flag, value := range map[string]string{"--gateway-https": g.HTTPSListen, "--gateway-http": g.HTTPListen} {
		if _, _, err := net.SplitHostPort(value); value != "" && err != nil {
			bad("%s: %q is not host:port; for example :443", flag, value)
		}
	}
	if g.CA != "" && g.CA != GatewayInternal {
		if u, err := url.Parse(g.CA); err != nil || u.Scheme != "https" || u.Host == "" {
			bad("--gateway-ca: %q is neither %s nor the https URL of an ACME directory", g.CA, GatewayInternal)
		}
	}
	if (g.CertFile == "") != (g.KeyFile == "") {
		bad("--gateway-certificate-file and --gateway-key-file: give both or neither")
	}
	for _, r := range g.Resolvers {
		if err := metrics.CheckAddress(r); err != nil {
			bad("--gateway-resolver: %w", err)
		}
	}
	if g.HSTS < 0 {
		bad("--gateway-hsts: %s is negative", g.HSTS)
	}
	if g.HTTPSPort < 0 || g.HTTPSPort > 65535 {
		bad("--gateway-https-port: %d is not a port", g.HTTPSPort)
	}
}

// port returns the port of an address; 0 for none.
func port(addr net.Addr) int {
	if tcp, ok := addr.(*net.TCPAddr); ok {
		return tcp.Port
	}
	return 0
}

var errNoGateway = errors.New("the control plane has no gateway; start `pipeops-controlplane serve` with --gateway-domain")
