package flags

import (
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway/webcerts"
	"github.com/pipeops/pipeops-vm-agent/internal/limit"
)

// Gateway describes the gateway: docs/reference/gateway.md.
type Gateway struct {
	cfg                  controlplane.GatewayConfig
	caRoots              string
	eabKeyID, eabKeyFile string
	balancers            []string
	http3                bool
}

// Add adds the flags of each process that serves the public.
func (g *Gateway) Add(f *pflag.FlagSet) {
	f.StringVar(&g.cfg.Domain, "gateway-domain", "", "domain of public Apps, for example apps.example.com; turns the gateway on; *.DOMAIN must lead to it")
	f.StringVar(&g.cfg.HTTPSListen, "gateway-https", controlplane.DefaultGatewayHTTPS, "listen address of the gateway for HTTPS")
	f.StringVar(&g.cfg.HTTPListen, "gateway-http", controlplane.DefaultGatewayHTTP, "listen address of the gateway for HTTP, which is redirected; empty for none")
	f.Var(&g.cfg.Ports.TCP, "gateway-tcp-ports", "ports that Apps may have for what is not HTTP, as 20000-20099,5432; none is open that no App has")
	f.Var(&g.cfg.Ports.UDP, "gateway-udp-ports", "ports that Apps may have for UDP, as 20000-20099,53; none is open that no App has")
	f.BoolVar(&g.http3, "gateway-http3", true, "serve HTTP/3 as well, at the UDP port of --gateway-https")
	f.IntVar(&g.cfg.HTTPSPort, "gateway-https-port", 0, "port at which visitors reach --gateway-https, if another one")
	f.StringVar(&g.cfg.CA, "gateway-ca", controlplane.DefaultGatewayCA, "directory of the ACME CA, or \"internal\" for a CA of the gateway's own")
	f.StringVar(&g.caRoots, "gateway-ca-roots", "", "PEM file with the CAs that verify the ACME CA itself (default: the machine's)")
	f.StringVar(&g.cfg.Email, "gateway-email", "", "contact of the account at the ACME CA")
	f.StringVar(&g.cfg.Certificates, "gateway-certificates", "", "directory with certificates of your own, such as a wildcard for --gateway-domain: NAME.crt and NAME.key in PEM; read again when they change")
	f.StringVar(&g.eabKeyID, "gateway-eab-key-id", "", "key ID by which the ACME CA binds the account to one of yours (external account binding)")
	f.StringVar(&g.eabKeyFile, "gateway-eab-key-file", "", "file with the HMAC key of --gateway-eab-key-id, in base64url as the CA gave it")
	f.StringVar(&g.cfg.DNSProvider, "gateway-dns-provider", "", "where the zone of --gateway-domain is: "+strings.Join(webcerts.Providers(), ", ")+"; obtains one certificate for *.DOMAIN")
	f.StringVar(&g.cfg.DNSServer, "gateway-dns-server", "", "host:port of the primary DNS server of --gateway-domain, which takes updates; implies --gateway-dns-provider "+webcerts.RFC2136)
	f.StringVar(&g.cfg.DNSKeyFile, "gateway-dns-key-file", "", "file with the key for updates of the zone: as tsig-keygen writes it, an API token, or for route53 a credentials file of the AWS CLI")
	f.StringSliceVar(&g.cfg.Resolvers, "gateway-resolver", nil, "host:port of a DNS server that is asked for proofs of hosts; may be repeated (default: the machine's)")
	f.StringSliceVar(&g.balancers, "gateway-proxy-protocol", nil, "address or network of a load balancer that sends the PROXY protocol, version 1 or 2; may be repeated")
	cli.DurationVar(f, &g.cfg.HSTS, "gateway-hsts", 0, "time for which browsers are asked to use HTTPS alone; 0 does not ask")
	f.StringVar(&g.cfg.Mode, "gateway-mode", gateway.ModeAuto, "how hosts are reached whose cluster has a load balancer with a public address: auto (there while it is proven, and through the tunnel otherwise), tunnel, or direct (there alone)")
	f.Var(&prefixes{&g.cfg.DirectAllow}, "gateway-direct-allow", "networks of private addresses at which load balancers may be, separated by commas, for example 10.20.0.0/16")
	f.Var(&prefixes{&g.cfg.DirectDeny}, "gateway-direct-deny", "networks to which the gateway does not connect, though their addresses are public, separated by commas")
	most(f, &g.cfg.Limits.Requests, gateway.DefaultRequests, "requests", "public requests that wait for their answer, or get one of a known length")
	most(f, &g.cfg.Limits.Streams, gateway.DefaultStreams, "streams", "WebSockets, server-sent events and other answers without a known end")
	most(f, &g.cfg.Limits.Flows, gateway.DefaultFlows, "flows", "flows of UDP, each of an address and port to a public port")
	f.BoolVar(&g.cfg.AccessLog, "gateway-access-log", false, "log each public request")
}

// most adds the flags of one kind of what is in progress.
func most(f *pflag.FlagSet, m *gateway.Most, defaults gateway.Most, kind, what string) {
	name := "gateway-max-" + kind
	f.IntVar(&m.All, name, defaults.All, "maximum number of "+what)
	f.IntVar(&m.PerAddress, name+"-per-address", defaults.PerAddress, "maximum number of them from one address")
	f.IntVar(&m.PerHost, name+"-per-host", defaults.PerHost, "maximum number of them for one host")
	f.IntVar(&m.PerAgent, name+"-per-agent", defaults.PerAgent, "maximum number of them for one agent")
}

// AddServe adds the flags of a control plane's own gateway.
func (g *Gateway) AddServe(f *pflag.FlagSet) {
	f.BoolVar(&g.cfg.Console, "gateway-console", false, "serve the console at https://console.DOMAIN as well, with a certificate of the gateway's")
	f.BoolVar(&g.cfg.Apart, "gateway-apart", false, "leave the public to processes of pipeops-controlplane gateway serve; for control planes with --ca-key-file")
}

// Apply writes the gateway into the configuration.
func (g *Gateway) Apply(cfg *controlplane.Config) error {
	g.cfg.NoHTTP3 = !g.http3
	cfg.Gateway = g.cfg
	if g.cfg.Domain == "" {
		cfg.Gateway = controlplane.GatewayConfig{Certificates: g.cfg.Certificates, Console: g.cfg.Console, Ports: g.cfg.Ports}
	}
	errs := []error{g.applyEAB(cfg)}
	for _, text := range g.balancers {
		network, err := limit.ParseNetwork(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("--gateway-proxy-protocol: %w", err))
		}
		cfg.Gateway.ProxyProtocol = append(cfg.Gateway.ProxyProtocol, network)
	}
	if err := errors.Join(errs...); err != nil || g.caRoots == "" {
		return err
	}
	text, err := os.ReadFile(g.caRoots)
	if err != nil {
		return fmt.Errorf("--gateway-ca-roots: %w", err)
	}
	cfg.Gateway.CARoots = x509.NewCertPool()
	if !cfg.Gateway.CARoots.AppendCertsFromPEM(text) {
		return fmt.Errorf("--gateway-ca-roots: %s holds no certificate in PEM", g.caRoots)
	}
	return nil
}

func (g *Gateway) applyEAB(cfg *controlplane.Config) (err error) {
	switch {
	case (g.eabKeyID == "") != (g.eabKeyFile == ""):
		return errors.New("--gateway-eab-key-id and --gateway-eab-key-file: give both or neither")
	case g.eabKeyID == "":
		return nil
	}
	if cfg.Gateway.EAB, err = webcerts.ReadEAB(g.eabKeyID, g.eabKeyFile); err != nil {
		return fmt.Errorf("--gateway-eab-key-file: %w", err)
	}
	return nil
}
