// Package sigstore verifies keyless signatures, whose certificates are of Sigstore's CA, with
// sigstore-go. It fetches the public Sigstore's root of trust, and knows neither images nor
// commits.
package sigstore

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"regexp"

	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/verify"
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
	v, err := NewVerifier(material)
	return Root{sum: fmt.Sprintf("%x", sha256.Sum256([]byte(text))), verifier: v}, err
}

// FieldError is a mistake in a field of a signer.
type FieldError struct{ Field, Message string }

func (e *FieldError) Error() string { return e.Field + " " + e.Message }

// Signer is a keyless signer that was checked.
type Signer struct {
	ID, Text string
	Policy   verify.PolicyOption
	Verifier *verify.Verifier // nil for the public Sigstore's
}

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
		ID:       fmt.Sprintf("keyless %q %q %q %s", k.Identity, k.IdentityRegexp, k.Issuer, of.sum),
		Text:     fmt.Sprintf("keyless identity %q of issuer %s", k.Identity, k.Issuer),
		Policy:   verify.WithCertificateIdentity(identity),
		Verifier: of.verifier,
	}
	if k.Identity == "" {
		s.Text = fmt.Sprintf("keyless identities like %q of issuer %s", k.IdentityRegexp, k.Issuer)
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

// NewVerifier returns what verifies keyless signatures, as cosign does by default: a certificate
// of the CA, an entry in the transparency log, and a time from the log or an authority for
// timestamps.
func NewVerifier(m root.TrustedMaterial) (*verify.Verifier, error) {
	demands := []verify.VerifierOption{verify.WithTransparencyLog(1), verify.WithObserverTimestamps(1)}
	if len(m.CTLogs()) > 0 {
		demands = append(demands, verify.WithSignedCertificateTimestamps(1))
	}
	return verify.NewVerifier(m, demands...)
}

// Reason returns why a signature does not count: of a certificate's identity, what it has instead.
func Reason(err error) string {
	if value, ok := errors.AsType[*verify.ErrValueMismatch](err); ok {
		return value.Error()
	}
	if value, ok := errors.AsType[*verify.ErrValueRegexMismatch](err); ok {
		return value.Error()
	}
	return err.Error()
}
