package controlplane

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/openid"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/peers"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/metrics"
	"github.com/pipeops/pipeops-vm-agent/internal/tlsfiles"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/rabbitmq"
)

// The defaults of Config.
const (
	DefaultAPIListen         = ":8443"
	DefaultTunnelListen      = ":7000"
	DefaultEdgeListen        = ":8444"
	DefaultPeerListen        = ":8445"
	DefaultHeartbeatInterval = 30 * time.Second
	DefaultCertificateTTL    = 24 * time.Hour
)

// Config configures a ControlPlane. DataDir is required.
type Config struct {
	// DataDir holds the CA, and the database unless Database is given. It is made if
	// it is not there.
	DataDir string
	// Database is PostgreSQL's; the zero value means SQLite in the data directory.
	Database store.Postgres
	// CAKey, with a Database, has the CA kept there as well, so that several control
	// planes may serve it side by side.
	CAKey ca.Key

	// PeerListen is where the other control planes reach this one, and AdvertisePeer the
	// host:port by which they do: with a CAKey only.
	PeerListen, AdvertisePeer string

	// Where to listen, host:port; port 0 takes any.
	APIListen, TunnelListen, EdgeListen string
	// Where agents and Runners find it. Empty means its listening addresses, for one machine.
	AdvertiseAPI                   string // URL
	AdvertiseTunnel, AdvertiseEdge string // host:port

	AgentsDomain, TrustDomain string

	// Gateway is through which the public reaches Apps.
	Gateway GatewayConfig

	// BrokerURLs may be empty: then nothing is announced, and everything kept.
	BrokerURLs []string
	// BrokerTLS is for amqps; nil means the machine's trusted CAs.
	BrokerTLS *tls.Config
	// BrokerReread returns both as they are now, for each new connection; nil if they do not
	// change.
	BrokerReread func() ([]string, *tls.Config, error)
	// RunnerBroker is passed on to `runner create`.
	RunnerBroker datadir.RunnerBroker

	// WebhookTLS has the CAs of webhooks' receivers; nil means the machine's.
	WebhookTLS tlsfiles.Source

	// OpenID is how operators sign in to the console, beside their certificates.
	OpenID openid.Config

	// Limits bound what one peer can take.
	Limits Limits

	// MetricsListen and PprofListen are addresses for Prometheus and for Go's profiles;
	// empty, which is the default, for none.
	MetricsListen, PprofListen string
	// Tracer makes spans of the calls of the API; nil for none.
	Tracer trace.TracerProvider

	HeartbeatInterval time.Duration
	CertificateTTL    time.Duration
	// OfflineGrace is how long a tunnel may be down before the agent counts as offline (5 s): a
	// restart is not an outage. StartGrace is the same for the agents that were online when the
	// control plane was last seen (45 s).
	OfflineGrace, StartGrace time.Duration

	Version string
	Log     zerolog.Logger
	// Now is the clock of everything that is judged; nil means time.Now.
	Now func() time.Time
}

var domainPattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$`)

func (c *Config) setDefaults() {
	c.APIListen = cmp.Or(c.APIListen, DefaultAPIListen)
	c.TunnelListen = cmp.Or(c.TunnelListen, DefaultTunnelListen)
	c.EdgeListen = cmp.Or(c.EdgeListen, DefaultEdgeListen)
	c.PeerListen = cmp.Or(c.PeerListen, DefaultPeerListen)
	c.AgentsDomain = cmp.Or(c.AgentsDomain, datadir.DefaultAgentsDomain)
	c.TrustDomain = cmp.Or(c.TrustDomain, datadir.DefaultTrustDomain)
	c.Version = cmp.Or(c.Version, "dev")
	c.HeartbeatInterval = cmp.Or(c.HeartbeatInterval, DefaultHeartbeatInterval)
	c.CertificateTTL = cmp.Or(c.CertificateTTL, DefaultCertificateTTL)
	c.OfflineGrace = cmp.Or(c.OfflineGrace, 5*time.Second)
	c.StartGrace = cmp.Or(c.StartGrace, 45*time.Second)
	c.Limits.setDefaults()
	c.Gateway.setDefaults()
	if c.Now == nil {
		c.Now = time.Now
	}
}

// Validate reports all that is wrong at once.
func (c *Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.DataDir == "" {
		bad("--data-dir: is empty; name a directory that survives restarts, for example /var/lib/pipeops-controlplane")
	}
	if c.Database.Given() {
		if err := c.Database.Validate(); err != nil {
			bad("--database: %w", err)
		}
	}
	if c.CAKey.Given() && !c.Database.Given() {
		bad("--ca-key-file: is for control planes that share a database; give --database as well, or leave it out")
	}
	if c.AdvertisePeer != "" && !c.CAKey.Given() {
		bad("--advertise-peer: is for several control planes on one database; give --ca-key-file as well, or leave it out")
	}
	for flag, value := range map[string]string{"--peer-listen": c.PeerListen, "--api-listen": c.APIListen, "--tunnel-listen": c.TunnelListen, "--edge-listen": c.EdgeListen} {
		if _, _, err := net.SplitHostPort(value); value != "" && err != nil {
			bad("%s: %q is not host:port; for example :8443", flag, value)
		}
	}
	if c.AdvertiseAPI != "" {
		if _, err := controlapi.ParseURL(c.AdvertiseAPI); err != nil {
			bad("--advertise-api: %w", err)
		}
	}
	for flag, value := range map[string]string{"--advertise-peer": c.AdvertisePeer, "--advertise-tunnel": c.AdvertiseTunnel, "--advertise-edge": c.AdvertiseEdge} {
		if host, _, err := net.SplitHostPort(value); value != "" && (err != nil || host == "") {
			bad("%s: %q is not host:port; for example control.example.com:7000", flag, value)
		}
	}
	for flag, value := range map[string]string{"--agents-domain": c.AgentsDomain, "--trust-domain": c.TrustDomain} {
		if value != "" && (!domainPattern.MatchString(value) || len(value) > 180) {
			bad("%s: %q is not a domain name in lower case", flag, value)
		}
	}
	for i, text := range c.BrokerURLs {
		if u, err := url.Parse(text); err != nil || u.Host == "" || u.Scheme != "amqp" && u.Scheme != "amqps" {
			bad("broker URL %d (%s): is not amqps://user:password@host:port/", i+1, rabbitmq.Redact(text))
		}
	}
	if c.HeartbeatInterval < 0 || c.HeartbeatInterval > time.Hour {
		bad("--heartbeat-interval: %s is not between 1s and 1h", c.HeartbeatInterval)
	}
	if c.CertificateTTL < 0 || c.CertificateTTL > 365*24*time.Hour {
		bad("--certificate-ttl: %s is not between 1m and 8760h", c.CertificateTTL)
	}
	c.Limits.validate(bad)
	c.Gateway.validate(bad)
	if !c.Gateway.Apart {
		c.Gateway.refuseTaken(c.ownListeners(), bad)
	}
	c.OpenID.Validate(bad)
	if c.Gateway.Apart && (c.Gateway.Domain == "" || !c.data().Shared()) {
		bad("--gateway-apart: is for control planes that share a database and a CA; give --gateway-domain, --database and --ca-key-file, or leave it out")
	}
	for flag, value := range map[string]string{flagMetrics: c.MetricsListen, flagPprof: c.PprofListen} {
		if err := metrics.CheckAddress(value); err != nil {
			bad("%s: %w", flag, err)
		}
	}
	return errors.Join(errs...)
}

// ownListeners returns where the control plane listens beside the gateway, by flag.
func (c *Config) ownListeners() map[string]string {
	all := map[string]string{
		"--api-listen": c.APIListen, "--tunnel-listen": c.TunnelListen, "--edge-listen": c.EdgeListen,
		flagMetrics: c.MetricsListen, flagPprof: c.PprofListen,
	}
	if c.CAKey.Given() {
		all["--peer-listen"] = c.PeerListen
	}
	return all
}

func (c *Config) data() datadir.Data {
	d := datadir.Data{Dir: c.DataDir, Database: c.Database, CAKey: c.CAKey}
	d.Database.Log = c.Log
	return d
}

// advertise fills in where the others find us from where we listen: right for one
// machine, which is what a first run has.
func (c *Config) advertise(api, tunnel, edge net.Addr) {
	if c.AdvertiseAPI == "" {
		c.AdvertiseAPI = "https://" + reachable(api)
	}
	if c.AdvertiseTunnel == "" {
		c.AdvertiseTunnel = reachable(tunnel)
	}
	if c.AdvertiseEdge == "" {
		c.AdvertiseEdge = reachable(edge)
	}
	c.AdvertiseAPI = strings.TrimSuffix(c.AdvertiseAPI, "/")
}

func reachable(addr net.Addr) string {
	host, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return addr.String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return net.JoinHostPort(host, port)
}

// serverNames returns the names that our own certificate is for.
func (c *Config) serverNames() []string {
	names := []string{"localhost", "127.0.0.1", "::1", peers.Endpoint(c.AdvertiseTunnel).ServerName, peers.Endpoint(c.AdvertiseEdge).ServerName}
	if u, err := url.Parse(c.AdvertiseAPI); err == nil {
		names = append(names, u.Hostname())
	}
	return names
}

// servesHost reports whether a Host header is a name that our certificate is for.
func (c *Config) servesHost(host string) bool {
	name := host
	if bare, _, err := net.SplitHostPort(host); err == nil {
		name = bare
	}
	return slices.Contains(c.serverNames(), strings.ToLower(strings.Trim(name, "[]")))
}
