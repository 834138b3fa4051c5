package imagesignature

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"time"

	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/tuf"
	"github.com/sigstore/sigstore-go/pkg/verify"
	"github.com/theupdateframework/go-tuf/v2/metadata/fetcher"
)

// Keyless is a signer without a key: an identity to which Sigstore's CA (Fulcio) gives short-lived
// certificates, because an issuer of OpenID Connect vouches for it.
type Keyless struct {
	// Identity is the subject of the certificates: an email address, or the URL of a workflow.
	Identity string `json:"identity,omitempty"`
	// IdentityRegexp matches the whole subject, instead of Identity.
	IdentityRegexp string `json:"identityRegexp,omitempty"`
	// Issuer is the URL of the issuer.
	Issuer string `json:"issuer"`
}

// The bounds of keyless signers.
const (
	MaxKeyless  = 16
	maxIdentity = 512
	// MaxRoot bounds a trusted_root.json, in bytes.
	MaxRoot = 32 << 10
)

// Root is the root of trust of a Sigstore: its CAs, logs and authorities for timestamps. The zero
// value is that of the public one, which is fetched.
type Root struct {
	sum      string
	verifier *verify.Verifier
}

// ReadRoot reads a trusted_root.json, as `cosign trusted-root create` writes it.
func ReadRoot(text string) (Root, error) {
	if len(text) > MaxRoot {
		return Root{}, fmt.Errorf("has more than %d KiB", MaxRoot>>10)
	}
	material, err := root.NewTrustedRootFromJSON([]byte(text))
	switch {
	case err != nil:
		return Root{}, fmt.Errorf("is not a trusted_root.json, as cosign trusted-root create writes it: %.200q", err.Error())
	case len(material.FulcioCertificateAuthorities()) == 0:
		return Root{}, errors.New("has no certificateAuthorities: add the CA that issues to signers (cosign trusted-root create --fulcio)")
	case len(material.RekorLogs()) == 0:
		return Root{}, errors.New("has no tlogs: add the transparency log (cosign trusted-root create --rekor)")
	}
	v, err := sigstoreVerifier(material)
	return Root{sum: fmt.Sprintf("%x", sha256.Sum256([]byte(text))), verifier: v}, err
}

// FieldError is a mistake in a field of a signer.
type FieldError struct{ Field, Message string }

func (e *FieldError) Error() string { return e.Field + " " + e.Message }

// Signer returns the signer, whose certificates are of that root's CA.
func (k Keyless) Signer(of Root) (Signer, error) {
	if err := k.check(); err != nil {
		return Signer{}, err
	}
	pattern := ""
	if k.IdentityRegexp != "" {
		pattern = `^(?:` + k.IdentityRegexp + `)$`
	}
	identity, err := verify.NewShortCertificateIdentity(k.Issuer, "", k.Identity, pattern)
	if err != nil {
		return Signer{}, err
	}
	s := Signer{
		id:     fmt.Sprintf("keyless %q %q %q %s", k.Identity, k.IdentityRegexp, k.Issuer, of.sum),
		text:   fmt.Sprintf("keyless identity %q of issuer %s", k.Identity, k.Issuer),
		policy: verify.WithCertificateIdentity(identity), keyless: true,
	}
	if k.Identity == "" {
		s.text = fmt.Sprintf("keyless identities like %q of issuer %s", k.IdentityRegexp, k.Issuer)
	}
	if of.verifier != nil {
		s.verifiers = []*verify.Verifier{of.verifier}
	}
	return s, nil
}

func (k Keyless) check() error {
	switch issuer, err := url.Parse(k.Issuer); {
	case len(k.Identity) > maxIdentity:
		return &FieldError{"identity", fmt.Sprintf("has more than %d bytes", maxIdentity)}
	case len(k.IdentityRegexp) > maxIdentity:
		return &FieldError{"identityRegexp", fmt.Sprintf("has more than %d bytes", maxIdentity)}
	case (k.Identity == "") == (k.IdentityRegexp == ""):
		return &FieldError{"identity", "or identityRegexp: set one of them, as cosign's --certificate-identity"}
	case err != nil || issuer.Scheme != "https" || issuer.Host == "" || len(k.Issuer) > maxIdentity:
		return &FieldError{"issuer", "has to be the https URL of the issuer, as cosign's --certificate-oidc-issuer: https://token.actions.githubusercontent.com"}
	}
	// What is not an expression by itself could end the group that matches the whole subject.
	if _, err := regexp.Compile(k.IdentityRegexp); err != nil {
		return &FieldError{"identityRegexp", "is not a regular expression (RE2)"}
	}
	return nil
}

// rootFor is how long a fetched root of trust is used, and until when if it cannot be fetched.
const (
	rootFor   = 24 * time.Hour
	rootUntil = 7 * rootFor
)

// publicRoot is the root of trust of the public Sigstore, which it publishes by TUF.
type publicRoot struct {
	mirror    string
	anchor    []byte // the first root.json
	transport http.RoundTripper
	now       func() time.Time

	turn     chan struct{} // who has it fetches, and has the fields below
	verifier *verify.Verifier
	at       time.Time
}

func newPublicRoot(c Config, transport http.RoundTripper, now func() time.Time) *publicRoot {
	p := &publicRoot{mirror: c.Mirror, anchor: c.MirrorRoot, transport: transport, now: now, turn: make(chan struct{}, 1)}
	if p.mirror == "" {
		p.mirror, p.anchor = tuf.DefaultMirror, tuf.DefaultRoot()
	}
	return p
}

// rootError is why there is no root of trust.
type rootError struct {
	mirror string
	err    error
}

func (e *rootError) Error() string {
	return "Sigstore's root of trust cannot be fetched from " + e.mirror + ": " + said(e.err)
}

func (e *rootError) Unwrap() error { return e.err }

// get returns what verifies keyless signatures of the public Sigstore.
func (p *publicRoot) get(ctx context.Context) (*verify.Verifier, error) {
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return nil, &rootError{p.mirror, ctx.Err()}
	}
	age := p.now().Sub(p.at)
	if p.verifier != nil && age < rootFor {
		return p.verifier, nil
	}
	v, err := p.fetch(ctx)
	switch {
	case err == nil:
		p.verifier, p.at = v, p.now()
	case p.verifier == nil || age > rootUntil:
		return nil, &rootError{p.mirror, err}
	}
	return p.verifier, nil
}

func (p *publicRoot) fetch(ctx context.Context) (*verify.Verifier, error) {
	f := &fetcher.DefaultFetcher{}
	f.SetHTTPClient(&http.Client{Transport: during{ctx, bounded{p.transport}}, Timeout: patience})
	f.SetRetry(0, 1)
	client, err := tuf.New(&tuf.Options{Root: p.anchor, RepositoryBaseURL: p.mirror, DisableLocalCache: true, Fetcher: f})
	if err != nil {
		return nil, err
	}
	material, err := root.GetTrustedRoot(client)
	if err != nil {
		return nil, err
	}
	return sigstoreVerifier(material)
}

// during ends requests with a context: go-tuf has none.
type during struct {
	ctx  context.Context //nolint:containedctx // of one fetch
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (d during) RoundTrip(r *http.Request) (*http.Response, error) {
	return d.next.RoundTrip(r.WithContext(d.ctx))
}
