package webcerts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"

	"github.com/caddyserver/certmagic"
	"github.com/libdns/libdns"
	"github.com/libdns/rfc2136"
	"go.uber.org/zap"

	"github.com/pipeops/pipeops-vm-agent/internal/retry"
)

// Updates is how the zone of the wildcard is changed, for the challenge DNS-01: by RFC 2136.
type Updates struct {
	// Domain is the domain whose wildcard gets a certificate; empty for none.
	Domain string
	// Server is the host:port of the primary DNS server of the zone.
	Server string
	// KeyFile has the key that signs the updates (TSIG), in the form of tsig-keygen. It is read for
	// each challenge.
	KeyFile string
}

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
	w.config.Issuers = []certmagic.Issuer{certmagic.NewACMEIssuer(w.config, certmagic.ACMEIssuer{
		CA: c.cfg.Directory, TestCA: c.cfg.Directory, Email: c.cfg.Email, Agreed: true, TrustedRoots: c.cfg.Roots, Logger: log,
		CertObtainTimeout: obtainTimeout, DisableHTTPChallenge: true, DisableTLSALPNChallenge: true,
		DNS01Solver: &certmagic.DNS01Solver{DNSManager: certmagic.DNSManager{
			DNSProvider: updater{w.updates}, Resolvers: []string{w.updates.Server}, Logger: log,
		}},
	})}
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

// RunWildcard obtains the wildcard's certificate, or takes it from the storage, and returns.
// Certmagic renews it then. Failed attempts are repeated until the context ends.
func (c *Certificates) RunWildcard(ctx context.Context) error {
	w := c.wildcard
	if w == nil {
		return nil
	}
	for failures := 1; ctx.Err() == nil; failures++ {
		limited, cancel := context.WithTimeout(ctx, obtainTimeout)
		err := w.config.ManageSync(limited, []string{w.name()})
		cancel()
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

// updater implements certmagic.DNSProvider.
type updater struct{ Updates }

// AppendRecords implements certmagic.DNSProvider.
func (u updater) AppendRecords(ctx context.Context, zone string, records []libdns.Record) ([]libdns.Record, error) {
	p, err := u.provider()
	if err != nil {
		return nil, err
	}
	return p.AppendRecords(ctx, zone, records)
}

// DeleteRecords implements certmagic.DNSProvider.
func (u updater) DeleteRecords(ctx context.Context, zone string, records []libdns.Record) ([]libdns.Record, error) {
	p, err := u.provider()
	if err != nil {
		return nil, err
	}
	return p.DeleteRecords(ctx, zone, records)
}

func (u updater) provider() (*rfc2136.Provider, error) {
	text, err := os.ReadFile(u.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("the key of DNS updates: %w", err)
	}
	name, algorithm, secret, err := parseKey(string(text))
	if err != nil {
		return nil, fmt.Errorf("the key of DNS updates in %s: %w", u.KeyFile, err)
	}
	return &rfc2136.Provider{KeyName: name, KeyAlg: algorithm, Key: secret, Server: u.Server}, nil
}

// Check returns what is wrong with the key's file.
func (u Updates) Check() error {
	_, err := updater{u}.provider()
	return err
}

var errKeyForm = errors.New(`it is not of the form key "NAME" { algorithm hmac-sha256; secret "BASE64"; }; make one with tsig-keygen`)

// parseKey reads what tsig-keygen writes. The errors have nothing of it.
func parseKey(text string) (name, algorithm, secret string, err error) {
	words := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" \t\r\n;{}\"", r) })
	if len(words) != 6 || words[0] != "key" {
		return "", "", "", errKeyForm
	}
	values := map[string]string{words[2]: words[3], words[4]: words[5]}
	algorithm, secret = strings.ToLower(values["algorithm"]), values["secret"]
	if !strings.HasPrefix(algorithm, "hmac-sha") || secret == "" {
		return "", "", "", errKeyForm
	}
	return words[1], algorithm, secret, nil
}
