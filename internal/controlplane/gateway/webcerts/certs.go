package webcerts

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/mholt/acmez/v3/acme"
	"github.com/rs/zerolog"
	"go.uber.org/zap"
)

const (
	// capacity is how many certificates are kept in memory; others are read when they are asked
	// for.
	capacity = 10_000
	// obtainTimeout bounds one attempt at a certificate.
	obtainTimeout = 2 * time.Minute
	// A failed attempt at the wildcard's is repeated after a minute at first.
	firstWildcardRetry, lastWildcardRetry = time.Minute, 6 * time.Hour
)

// Config configures Certificates.
type Config struct {
	Storage *Storage
	// Internal is the CA that signs; nil for ACME.
	Internal *Internal
	// Directory is the URL of the ACME CA's directory, Email the contact of the account there, and
	// Roots what its certificate is verified by; nil for the machine's.
	Directory, Email string
	Roots            *x509.CertPool
	// EAB binds the account; nil for none.
	EAB *EAB
	// HTTPPort and HTTPSPort are where the gateway listens itself.
	HTTPPort, HTTPSPort int
	// Own is a directory with certificates of the operator's: NAME.crt and NAME.key, in PEM; empty
	// for none.
	Own string
	// Wildcard has one certificate for the hosts below a domain.
	Wildcard Updates
	// Served returns the host of the route for a name: the name itself, or the wildcard *.PARENT;
	// empty if there is none, and no certificate either.
	Served func(name string) (host string)
	// Orders reports whether a handshake may order the certificate of a host from the ACME CA; nil
	// for all that are served.
	Orders func(ctx context.Context, host string) bool
	Log    zerolog.Logger
}

// Certificates are the gateway's certificates.
type Certificates struct {
	cfg    Config
	cache  *certmagic.Cache
	config *certmagic.Config
	acme   *certmagic.ACMEIssuer
	// wildcard is nil if there is none.
	wildcard *wildcard

	had stored

	mu       sync.Mutex
	own      map[string]ownFile // by NAME
	ownFault error
}

// New returns Certificates. Close frees what they hold.
func New(cfg Config) *Certificates {
	c := &Certificates{cfg: cfg, own: map[string]ownFile{}}
	log := newLog(cfg.Log)
	c.cache = certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert: func(cert certmagic.Certificate) (*certmagic.Config, error) {
			if c.wildcard != nil && slices.Contains(cert.Names, c.wildcard.name()) {
				return c.wildcard.config, nil
			}
			return c.config, nil
		},
		Capacity: capacity, Logger: log,
	})
	c.config = certmagic.New(c.cache, certmagic.Config{
		Storage: cfg.Storage, Logger: log, OCSP: certmagic.OCSPConfig{DisableStapling: cfg.Internal != nil},
		OnDemand: &certmagic.OnDemandConfig{DecisionFunc: c.decide},
	})
	if cfg.Internal != nil {
		c.config.Issuers = []certmagic.Issuer{cfg.Internal}
		return c
	}
	issuer := cfg.issuer(log)
	issuer.AltHTTPPort, issuer.AltTLSALPNPort, issuer.DisableHTTPChallenge = cfg.HTTPPort, cfg.HTTPSPort, cfg.HTTPPort == 0
	c.acme = certmagic.NewACMEIssuer(c.config, issuer)
	c.config.Issuers = []certmagic.Issuer{c.acme}
	if cfg.Wildcard.Domain != "" {
		c.wildcard = newWildcard(c, log)
	}
	return c
}

// noEmail keeps certmagic from asking at the terminal for a contact. It trims the text.
const noEmail = " "

// issuer returns the ACME CA, and the account there.
func (cfg *Config) issuer(log *zap.Logger) certmagic.ACMEIssuer {
	return certmagic.ACMEIssuer{
		CA: cfg.Directory, TestCA: cfg.Directory, Email: cmp.Or(cfg.Email, noEmail), Agreed: true, TrustedRoots: cfg.Roots, Logger: log,
		ExternalAccount: (*acme.EAB)(cfg.EAB), CertObtainTimeout: obtainTimeout,
	}
}

var (
	errNotServed  = errors.New("the host is not served here")
	errNotOrdered = errors.New("a handshake orders no certificate for the host")
)

// decide returns why a handshake gets no certificate.
func (c *Certificates) decide(ctx context.Context, name string) error {
	name = strings.ToLower(name)
	covered := c.wildcard.covers(name)
	switch {
	case c.cfg.Served(name) == "", covered && !c.wildcard.stored(ctx):
		return errNotServed
	case covered, c.acme == nil, c.cfg.Orders == nil, c.Has(ctx, name), c.cfg.Orders(ctx, name):
		return nil
	}
	return errNotOrdered
}

// Internal reports whether the certificates are of the gateway's own CA.
func (c *Certificates) Internal() bool { return c.cfg.Internal != nil }

// Close stops what maintains the certificates.
func (c *Certificates) Close() { c.cache.Stop() }

// get returns a handshake's certificate. Without one and without an error, crypto/tls sends the
// alert unrecognized_name (RFC 6066, section 3).
func (c *Certificates) get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	name := strings.ToLower(hello.ServerName)
	if cert := c.fitting(hello, name, ofOperator); cert != nil && !isChallenge(hello) {
		return cert, nil
	}
	host := c.cfg.Served(name)
	// certmagic does not take a name with a low line, which is not a host's name (RFC 1123, section
	// 2.1). Of the other names of a wildcard, visitors could invent as many as they like.
	if strings.HasPrefix(host, "*.") && (c.cfg.Internal != nil || strings.Contains(name, "_")) {
		return c.ofWildcard(hello, name, host)
	}
	cert, err := c.config.GetCertificate(hello)
	if err != nil && host == "" {
		return nil, nil //nolint:nilnil // crypto/tls has no error for it
	}
	return cert, err
}

// fitting returns a certificate in memory that a client takes for a name; nil if there is none.
func (c *Certificates) fitting(hello *tls.ClientHelloInfo, name string, wanted func(certmagic.Certificate) bool) *tls.Certificate {
	for _, cert := range c.cache.AllMatchingCertificates(name) {
		if wanted(cert) && !cert.Expired() && hello.SupportsCertificate(&cert.Certificate) == nil {
			return &cert.Certificate
		}
	}
	return nil
}

// ofWildcard returns the certificate that a name shares with all other names of a wildcard.
func (c *Certificates) ofWildcard(hello *tls.ClientHelloInfo, name, wildcard string) (*tls.Certificate, error) {
	if cert := c.fitting(hello, name, func(certmagic.Certificate) bool { return true }); cert != nil {
		return cert, nil
	}
	if c.cfg.Internal == nil {
		return nil, nil //nolint:nilnil // as above
	}
	if err := c.Ensure(hello.Context(), wildcard); err != nil {
		return nil, err
	}
	cert, err := c.config.CacheManagedCertificate(hello.Context(), wildcard)
	return &cert.Certificate, err
}

// TLS returns the configuration of the gateway's listener.
func (c *Certificates) TLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, GetCertificate: c.get,
		NextProtos: []string{"h2", "http/1.1", "acme-tls/1"},
	}
}

// Challenge returns the handler that answers ACME's HTTP challenges; nil if there are none.
func (c *Certificates) Challenge() func(http.Handler) http.Handler {
	if c.acme == nil {
		return nil
	}
	return c.acme.HTTPChallengeHandler
}

// Ensure obtains a host's certificate if there is none, and renews one that ends soon.
func (c *Certificates) Ensure(ctx context.Context, host string) error {
	ctx, cancel := context.WithTimeout(ctx, obtainTimeout)
	defer cancel()
	if err := c.config.ObtainCertSync(ctx, host); err != nil {
		return err
	}
	return c.config.RenewCertSync(ctx, host, false)
}

// Has reports whether there is a certificate for a host: the operator's, or one that was obtained.
func (c *Certificates) Has(ctx context.Context, host string) bool {
	switch {
	case c.hasOfOperator(host) || c.had.is(host):
		return true
	case c.wildcard.covers(host):
		return c.wildcard.stored(ctx)
	}
	key := certmagic.StorageKeys.SiteCert(c.config.Issuers[0].IssuerKey(), host)
	if !c.config.Storage.Exists(ctx, key) {
		return false
	}
	c.had.add(host)
	return true
}

// Covered reports whether a host needs no certificate of its own: the operator's covers it, or the
// wildcard's.
func (c *Certificates) Covered(host string) bool {
	return c.wildcard.covers(host) || c.hasOfOperator(host)
}

// Ends returns when the first of the hosts' certificates in memory ends; zero if there is none.
func (c *Certificates) Ends(hosts []string) (first time.Time) {
	for _, host := range hosts {
		var last time.Time // the best certificate of a host counts
		for _, cert := range c.cache.AllMatchingCertificates(host) {
			if cert.Leaf != nil && cert.Leaf.NotAfter.After(last) {
				last = cert.Leaf.NotAfter
			}
		}
		if !last.IsZero() && (first.IsZero() || last.Before(first)) {
			first = last
		}
	}
	return first
}
