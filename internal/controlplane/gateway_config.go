package controlplane

import (
	"cmp"
	"crypto/x509"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway/webcerts"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ports"
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
	// Console serves the console at consoleLabel below Domain, too.
	Console bool
	// Apart leaves the public to separate processes (GatewayServer), and the ports closed.
	Apart bool
	// HTTPSListen and HTTPListen are where it listens. An empty HTTPListen means no plain HTTP.
	HTTPSListen, HTTPListen string
	// Ports are those that Apps may have. None is open that no App has.
	Ports ports.Open
	// NoHTTP3 leaves the UDP port of HTTPSListen closed.
	NoHTTP3 bool
	// HTTPSPort is the port at which visitors reach HTTPSListen; 0 if it is the same.
	HTTPSPort int
	// CA is the URL of an ACME directory, or GatewayInternal.
	CA string
	// Email is the contact of the ACME account, and CARoots verify the ACME CA itself; nil for the
	// machine's.
	Email   string
	CARoots *x509.CertPool
	// Certificates is a directory with certificates of the operator's, such as a wildcard for
	// Domain: NAME.crt and NAME.key; empty for none.
	Certificates string
	// EAB binds the ACME account to one that the CA knows already; nil for none.
	EAB *webcerts.EAB
	// DNSProvider is where the zone of Domain is: a name of webcerts.Providers, or empty. With it,
	// one certificate of the ACME CA covers *.Domain. DNSKeyFile has what the provider accepts
	// updates by. DNSServer, host:port, is for webcerts.RFC2136, the default where it is given.
	DNSProvider, DNSServer, DNSKeyFile string
	// Resolvers are the DNS servers that are asked for proofs of hosts, host:port; none means the
	// machine's.
	Resolvers []string
	// ProxyProtocol are the networks of load balancers that send the PROXY protocol. Connections
	// from elsewhere are visitors' own.
	ProxyProtocol []netip.Prefix
	// HSTS is for how long browsers are asked to use HTTPS alone.
	HSTS time.Duration
	// AccessLog logs each request.
	AccessLog bool
	// Limits bound what is in progress at a time.
	Limits gateway.Limits
	// Mode is how hosts are reached whose cluster has a load balancer with a public address:
	// gateway.ModeAuto, ModeTunnel or ModeDirect.
	Mode string
	// DirectAllow are networks that count as public. DirectDeny are networks to which the gateway
	// connects in no case.
	DirectAllow, DirectDeny []netip.Prefix
	// DirectPort is that of HTTPS at load balancers; 443 if zero. Tests change it.
	DirectPort int
}

// consoleLabel is the name of the console's host below the gateway's domain. No App has it: theirs
// end with a digest.
const consoleLabel = "console."

func (g *GatewayConfig) setDefaults() {
	if g.Domain == "" {
		return
	}
	g.HTTPSListen = cmp.Or(g.HTTPSListen, DefaultGatewayHTTPS)
	g.CA = cmp.Or(g.CA, DefaultGatewayCA)
}

// refuseTaken refuses ports for Apps at which this process listens itself, by flag.
func (g *GatewayConfig) refuseTaken(listeners map[string]string, bad func(format string, args ...any)) {
	for _, flag := range slices.Sorted(maps.Keys(listeners)) {
		_, at, _ := net.SplitHostPort(listeners[flag]) // others report what it is not
		if n, err := strconv.Atoi(at); err == nil && g.Ports.TCP.Has(n) {
			bad("--gateway-tcp-ports: %d is the port of %s; leave it out", n, flag)
		}
	}
}

func (g *GatewayConfig) validate(bad func(format string, args ...any)) {
	if g.Domain == "" {
		if g.Certificates != "" || g.CARoots != nil || g.Console || g.Ports.Any() {
			bad("--gateway-domain: is missing; name the domain of public Apps, or leave the other gateway flags out")
		}
		return
	}
	if !domainPattern.MatchString(g.Domain) || len(g.Domain) > 180 || !strings.Contains(g.Domain, ".") {
		bad("--gateway-domain: %q is not a domain name in lower case with a dot; for example apps.example.com", g.Domain)
	}
	if g.Console && g.Apart {
		bad("--gateway-console: the processes of --gateway-apart have no console; give one of both")
	}
	listeners := map[string]string{"--gateway-https": g.HTTPSListen, "--gateway-http": g.HTTPListen}
	for flag, value := range listeners {
		if _, _, err := net.SplitHostPort(value); value != "" && err != nil {
			bad("%s: %q is not host:port; for example :443", flag, value)
		}
	}
	g.refuseTaken(listeners, bad)
	g.validateUDP(bad)
	if g.CA != "" && g.CA != GatewayInternal {
		if u, err := url.Parse(g.CA); err != nil || u.Scheme != "https" || u.Host == "" {
			bad("--gateway-ca: %q is neither %s nor the https URL of an ACME directory", g.CA, GatewayInternal)
		}
	}
	if g.EAB != nil && g.CA == GatewayInternal {
		bad("--gateway-eab-key-id: is for an ACME CA; leave it out with --gateway-ca %s", GatewayInternal)
	}
	g.validateDNS(bad)
	for _, r := range g.Resolvers {
		if err := metrics.CheckAddress(r); err != nil {
			bad("--gateway-resolver: %w", err)
		}
	}
	if !slices.Contains([]string{"", gateway.ModeAuto, gateway.ModeTunnel, gateway.ModeDirect}, g.Mode) {
		bad("--gateway-mode: %q is none of auto, tunnel and direct", g.Mode)
	}
	for flag, value := range map[string]int{
		"--gateway-max-requests": g.Limits.Requests.All, "--gateway-max-requests-per-address": g.Limits.Requests.PerAddress,
		"--gateway-max-requests-per-host": g.Limits.Requests.PerHost, "--gateway-max-requests-per-agent": g.Limits.Requests.PerAgent,
		"--gateway-max-flows": g.Limits.Flows.All, "--gateway-max-flows-per-address": g.Limits.Flows.PerAddress,
		"--gateway-max-flows-per-host": g.Limits.Flows.PerHost, "--gateway-max-flows-per-agent": g.Limits.Flows.PerAgent,
		"--gateway-max-streams": g.Limits.Streams.All, "--gateway-max-streams-per-address": g.Limits.Streams.PerAddress,
		"--gateway-max-streams-per-host": g.Limits.Streams.PerHost, "--gateway-max-streams-per-agent": g.Limits.Streams.PerAgent,
	} {
		if value < 0 {
			bad("%s: %d is below 1; leave it out for the default", flag, value)
		}
	}
	if g.HSTS < 0 {
		bad("--gateway-hsts: %s is negative", g.HSTS)
	}
	if g.HTTPSPort < 0 || g.HTTPSPort > 65535 {
		bad("--gateway-https-port: %d is not a port", g.HTTPSPort)
	}
}

// validateUDP leaves the port of HTTP/3 to HTTP/3, also the one that visitors are told.
func (g *GatewayConfig) validateUDP(bad func(format string, args ...any)) {
	_, at, _ := net.SplitHostPort(g.HTTPSListen)
	own, _ := strconv.Atoi(at) // 0 for a port that the system chooses
	for _, n := range []int{own, g.HTTPSPort} {
		if !g.NoHTTP3 && g.Ports.UDP.Has(n) {
			bad("--gateway-udp-ports: %d is the port of HTTP/3; leave it out, or set --gateway-http3=false", n)
			return
		}
	}
}

func (g *GatewayConfig) validateDNS(bad func(format string, args ...any)) {
	provider := g.dnsProvider()
	switch {
	case provider == "" && g.DNSKeyFile != "":
		bad("--gateway-dns-key-file: give --gateway-dns-server or --gateway-dns-provider too")
		return
	case provider == "":
		return
	case !slices.Contains(webcerts.Providers(), provider):
		bad("--gateway-dns-provider: %q is none of %s", provider, strings.Join(webcerts.Providers(), ", "))
		return
	case g.CA == GatewayInternal:
		bad("--gateway-dns-provider: is for an ACME CA; leave it out with --gateway-ca %s", GatewayInternal)
	case g.DNSKeyFile == "" && provider != webcerts.Route53:
		bad("--gateway-dns-key-file: is missing; name the file with the key for %s", provider)
		return
	}
	g.validateDNSServer(provider, bad)
	if err := g.wildcard().Check(); err != nil {
		bad("--gateway-dns-key-file: %w", err)
	}
}

func (g *GatewayConfig) validateDNSServer(provider string, bad func(format string, args ...any)) {
	_, _, err := net.SplitHostPort(g.DNSServer)
	switch {
	case provider != webcerts.RFC2136 && g.DNSServer != "":
		bad("--gateway-dns-server: is for the provider %s; leave it out with %s", webcerts.RFC2136, provider)
	case provider == webcerts.RFC2136 && err != nil:
		bad("--gateway-dns-server: %q is not host:port; for example ns1.example.com:53", g.DNSServer)
	}
}

// dnsProvider returns where the zone of the wildcard is; empty if there is no wildcard.
func (g *GatewayConfig) dnsProvider() string {
	if g.DNSServer != "" {
		return cmp.Or(g.DNSProvider, webcerts.RFC2136)
	}
	return g.DNSProvider
}

// wildcard returns how the certificate of *.Domain is obtained; the zero value if it is not.
func (g *GatewayConfig) wildcard() webcerts.Updates {
	provider := g.dnsProvider()
	if provider == "" {
		return webcerts.Updates{}
	}
	return webcerts.Updates{Domain: g.Domain, Provider: provider, Server: g.DNSServer, KeyFile: g.DNSKeyFile, Resolvers: g.Resolvers}
}

// port returns the port of an address; 0 for none.
func port(addr net.Addr) int {
	if tcp, ok := addr.(*net.TCPAddr); ok {
		return tcp.Port
	}
	return 0
}
