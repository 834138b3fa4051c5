package openid

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

// rememberFor is how long after its end a token is remembered, for clocks of other control planes.
const rememberFor = time.Hour

// Claims are the claims of a verified token, by name.
type Claims map[string]json.RawMessage

// Text returns a claim that is a text.
func (c Claims) Text(name string) (text string, ok bool) {
	return text, json.Unmarshal(c[name], &text) == nil
}

// Proof is what a verified token proves.
type Proof struct {
	Subject         string
	Issued, Expires time.Time
	Claims          Claims
	digest          string // of the token
}

// ProofOf returns what a verified token proves.
func ProofOf(token *oidc.IDToken) (Proof, error) {
	p := Proof{Subject: token.Subject, Issued: token.IssuedAt, Expires: token.Expiry}
	var raw json.RawMessage
	if err := errors.Join(token.Claims(&raw), token.Claims(&p.Claims)); err != nil {
		return p, err
	}
	if token.Subject == "" {
		return p, errors.New("it has no sub")
	}
	p.digest = digestOf(token.Issuer, raw, p.Claims)
	return p, nil
}

// digestOf identifies a token: by its ID, or else by its claims. Its text would not do, because
// encodings and signatures have several forms.
func digestOf(issuer string, raw json.RawMessage, c Claims) string {
	sum := sha256.New()
	sum.Write([]byte(issuer))
	sum.Write([]byte{0})
	if id, ok := c.Text("jti"); ok && id != "" {
		sum.Write([]byte(id))
	} else {
		sum.Write([]byte{0})
		sum.Write(raw)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// Take has the token be good for a key alone, and reports whether it is good for this one. A client
// that lost the answer sends the token again with the same key.
func (p *Proof) Take(ctx context.Context, tx *store.Tx, key string) (bool, error) {
	return tx.TakeIDToken(ctx, p.digest, key, p.Expires.Add(rememberFor))
}
