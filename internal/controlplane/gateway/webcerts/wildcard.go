package webcerts

import (
	"context"
	"strings"
	"sync/atomic"

	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"

	"github.com/pipeops/pipeops-vm-agent/internal/retry"
)

// wildcard keeps one certificate for all hosts below a domain.
type wildcard struct {
	updates Updates
	config  *certmagic.Config
	failed  atomic.Pointer[string]
}

// newWildcard shares the storage and the account of c.
func newWildcard(c *Certificates, log *zap.Logger) *wildcard {
	w := &wildcard{updates: c.cfg.Wildcard}
	w.config = certmagic.New(c.cache, certmagic.Config{Storage: c.cfg.Storage, Logger: log})
	issuer := c.cfg.issuer(log)
	issuer.DisableHTTPChallenge, issuer.DisableTLSALPNChallenge = true, true
	issuer.DNS01Solver = &certmagic.DNS01Solver{DNSManager: certmagic.DNSManager{
		DNSProvider: updater{w.updates}, Resolvers: w.updates.resolvers(), TTL: challengeTTL, Logger: log,
	}}
	w.config.Issuers = []certmagic.Issuer{certmagic.NewACMEIssuer(w.config, issuer)}
	return w
}

func (w *wildcard) name() string { return "*." + w.updates.Domain }

// covers reports whether a host is below the domain by one label. A nil wildcard covers none.
func (w *wildcard) covers(host string) bool {
	if w == nil {
		return false
	}
	_, parent, _ := strings.Cut(host, ".")
	return parent == w.updates.Domain
}

// stored reports whether there is the certificate.
func (w *wildcard) stored(ctx context.Context) bool {
	return w.config.Storage.Exists(ctx, certmagic.StorageKeys.SiteCert(w.config.Issuers[0].IssuerKey(), w.name()))
}

// ObtainWildcard obtains the wildcard's certificate, or takes it from the storage. Certmagic renews
// it then.
func (c *Certificates) ObtainWildcard(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, obtainTimeout)
	defer cancel()
	return c.wildcard.config.ManageSync(ctx, []string{c.wildcard.name()})
}

// RunWildcard returns once ObtainWildcard has succeeded. Failed attempts are repeated until the
// context ends.
func (c *Certificates) RunWildcard(ctx context.Context) error {
	w := c.wildcard
	if w == nil {
		return nil
	}
	for failures := 1; ctx.Err() == nil; failures++ {
		err := c.ObtainWildcard(ctx)
		if err == nil {
			w.failed.Store(nil)
			return nil
		}
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the end
		}
		pause := retry.After(firstWildcardRetry, lastWildcardRetry, failures)
		reason := err.Error()
		w.failed.Store(&reason)
		c.cfg.Log.Warn().Err(err).Str("host", w.name()).Dur("retryIn", pause).Msg("failed to obtain a certificate for the wildcard")
		retry.Wait(ctx, pause)
	}
	return nil
}

// WildcardFailed returns why a host that the wildcard covers has no certificate; empty if no
// attempt has failed here.
func (c *Certificates) WildcardFailed(host string) string {
	if !c.wildcard.covers(host) {
		return ""
	}
	if reason := c.wildcard.failed.Load(); reason != nil {
		return *reason
	}
	return ""
}
