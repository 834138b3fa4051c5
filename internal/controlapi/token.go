package controlapi

import (
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base32"
	"errors"
	"net/url"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/trustanchor"
)

const (
	tokenPrefix  = "pipeops_"
	tokenIDLen   = 16 // 80 bits in base32
	secretLen    = 52 // 256 bits in base32
	maxTokenText = 512
	maxProof     = 8 << 10
	addressSign  = "@"
	proofSign    = "~"
)

var tokenEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// ErrMalformedToken is returned for a text that cannot be an enrolment token. It never quotes the
// text, most of which may be a secret.
var ErrMalformedToken = errors.New("not an enrolment token: expected pipeops_ID[_SECRET][.FINGERPRINT][@HOST[:PORT]] " +
	"(fix: copy the whole line that `pipeops-controlplane token create` printed)")

// Token is an enrolment token:
//
//	pipeops_ID[_SECRET][.FINGERPRINT][@HOST[:PORT]]
//
// ID names the token, SECRET is 256 random bits, both in lower-case base32. A token without SECRET
// names the Kubernetes cluster that the control plane trusts: its agent sends a service-account
// token as the proof.
// FINGERPRINT is the SHA-256 of the public key (SPKI) of the control plane's CA,
// in hexadecimal: with it the first connection is verified without a file to
// copy. It is absent where the control plane's certificate is a public one.
// HOST[:PORT] is the control plane's HTTPS address, so that an agent needs no other
// setting to find it. It is absent from a token made before the control plane first served.
type Token struct {
	ID          string
	Fingerprint string
	Address     string
	secret      string
	proof       string
}

// Public reports whether the token has no secret, so that anyone may read it.
func (t Token) Public() bool { return t.secret == "" }

// With returns a token without a secret with a proof in its place.
func (t Token) With(proof string) Token {
	t.proof = proof
	return t
}

// Proof returns the service-account token that came in the place of a secret.
func (t Token) Proof() string { return t.proof }

// URL returns the control plane's URL, or an empty text if the token has no address.
func (t Token) URL() string {
	if t.Address == "" {
		return ""
	}
	return "https://" + t.Address
}

// NewToken returns a token with a new secret.
func NewToken(fingerprint string) (Token, error) {
	token, err := NewPublicToken(fingerprint)
	if err != nil {
		return Token{}, err
	}
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return Token{}, err
	}
	token.secret = tokenEncoding.EncodeToString(secret)
	return token, nil
}

// NewPublicToken returns a new token without a secret.
func NewPublicToken(fingerprint string) (Token, error) {
	id := make([]byte, 10)
	if _, err := rand.Read(id); err != nil {
		return Token{}, err
	}
	return Token{ID: tokenEncoding.EncodeToString(id), Fingerprint: fingerprint}, nil
}

// At returns the token with the address of the control plane's URL, if the URL is
// https://HOST[:PORT].
func (t Token) At(controlPlane string) Token {
	address, https := strings.CutPrefix(strings.TrimSuffix(controlPlane, "/"), "https://")
	if https && isAddress(address) {
		t.Address = address
	}
	return t
}

// ParseToken reads a token's text. Surrounding white space is taken off, as it
// comes with files and copying.
func ParseToken(text string) (Token, error) {
	text = strings.TrimSpace(text)
	if len(text) > maxTokenText {
		return Token{}, ErrMalformedToken
	}
	rest, ok := strings.CutPrefix(text, tokenPrefix)
	if !ok {
		return Token{}, ErrMalformedToken
	}
	rest, address, addressed := strings.Cut(rest, addressSign)
	rest, fingerprint, pinned := strings.Cut(rest, ".")
	id, secret, secretive := strings.Cut(rest, "_")
	if !isBase32(id, tokenIDLen) || secretive && !isBase32(secret, secretLen) || pinned && !trustanchor.IsFingerprint(fingerprint) || addressed && !isAddress(address) {
		return Token{}, ErrMalformedToken
	}
	return Token{ID: id, secret: secret, Fingerprint: fingerprint, Address: address}, nil
}

// Reveal returns the whole token, secret included: for its owner's eyes.
func (t Token) Reveal() string {
	text := tokenPrefix + t.ID
	if !t.Public() {
		text += "_" + t.secret
	}
	if t.Fingerprint != "" {
		text += "." + t.Fingerprint
	}
	if t.Address != "" {
		text += addressSign + t.Address
	}
	return text
}

// ParseCredential reads what Credential returned.
func ParseCredential(text string) (Token, error) {
	text, proof, proven := strings.Cut(text, proofSign)
	token, err := ParseToken(text)
	if err != nil || len(proof) > maxProof || proven != token.Public() {
		return Token{}, ErrMalformedToken
	}
	return token.With(proof), nil
}

// Credential returns the part of the token that is sent: the control plane knows its own CA.
func (t Token) Credential() string {
	if t.Public() {
		return tokenPrefix + t.ID + proofSign + t.proof
	}
	return tokenPrefix + t.ID + "_" + t.secret
}

// Hash returns what the control plane stores instead of the secret. A plain SHA-256 is enough for
// 256 random bits.
func (t Token) Hash() []byte {
	sum := sha256.Sum256([]byte(t.secret))
	return sum[:]
}

// String masks the secret, or the proof, so that a token in a log gives nothing away.
func (t Token) String() string { return tokenPrefix + t.ID + "_***" }

// GoString masks the secret for %#v as well.
func (t Token) GoString() string { return t.String() }

// Fingerprint returns how a token names a CA.
func Fingerprint(ca *x509.Certificate) string { return trustanchor.Fingerprint(ca) }

// KeyFingerprint returns the fingerprint of a public key alone.
func KeyFingerprint(key crypto.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return "", err
	}
	return Fingerprint(&x509.Certificate{RawSubjectPublicKeyInfo: der}), nil
}

// isAddress reports whether a text is HOST[:PORT] and nothing more, which is safe in a shell's
// line.
func isAddress(s string) bool {
	u, err := url.Parse("https://" + s)
	return err == nil && u.Host == s && u.Hostname() != "" && strings.Trim(s, addressLetters) == ""
}

const addressLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-:[]"

func isBase32(s string, length int) bool {
	return len(s) == length && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz234567") == ""
}
