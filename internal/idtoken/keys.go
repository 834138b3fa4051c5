package idtoken

import (
	"cmp"
	"context"
	"crypto"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"

	"github.com/pipeops/pipeops-vm-agent/internal/decode"
)

const (
	// maxKeySet bounds a key set that an operator gives, in bytes.
	maxKeySet = 32 << 10
	// maxKeys bounds its keys: each is tried for a token.
	maxKeys = 16
	// leastRSA is the least size of an RSA key, in bits.
	leastRSA = 2048
)

// Keys are the public keys of an issuer, as an operator has given them. No others are fetched.
type Keys struct {
	public []crypto.PublicKey
	text   string
}

// ParseKeys reads a JSON Web Key Set (RFC 7517) of public keys. Its errors have no key.
func ParseKeys(text string) (Keys, error) {
	if len(text) > maxKeySet {
		return Keys{}, fmt.Errorf("the key set has %d bytes, more than %d; keep only the keys of this cluster's issuer", len(text), maxKeySet)
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if decode.LimitsFor(maxKeySet).JSON([]byte(text), &set) != nil {
		return Keys{}, errors.New("it is not a JSON Web Key Set; give what `kubectl get --raw /openid/v1/jwks` prints")
	}
	switch n := len(set.Keys); {
	case n == 0:
		return Keys{}, errors.New("it has no keys; give what `kubectl get --raw /openid/v1/jwks` prints")
	case n > maxKeys:
		return Keys{}, fmt.Errorf("it has %d keys, more than %d; keep only those of this cluster's issuer", n, maxKeys)
	}
	keys := Keys{}
	kept := jose.JSONWebKeySet{}
	for i, raw := range set.Keys {
		key, err := parseKey(raw)
		if err != nil {
			return Keys{}, fmt.Errorf("keys[%d]: %w", i, err)
		}
		keys.public = append(keys.public, key.Key)
		kept.Keys = append(kept.Keys, key)
	}
	canonical, err := json.Marshal(kept)
	keys.text = string(canonical)
	return keys, err
}

// parseKey reads a public key, and keeps of it what names and verifies.
func parseKey(raw json.RawMessage) (jose.JSONWebKey, error) {
	var kind struct {
		Type string `json:"kty"`
	}
	if json.Unmarshal(raw, &kind) == nil && kind.Type == "oct" {
		return jose.JSONWebKey{}, errors.New("it is a symmetric key, which is a secret; remove it and replace it where it is used, and give public keys")
	}
	var key jose.JSONWebKey
	if key.UnmarshalJSON(raw) != nil {
		return jose.JSONWebKey{}, errors.New("it is not a key of type RSA, EC or OKP (Ed25519); remove it")
	}
	if !key.IsPublic() {
		return jose.JSONWebKey{}, errors.New("it is a private key; replace it where it is used, and give the public key")
	}
	if public, ok := key.Key.(*rsa.PublicKey); ok && public.N.BitLen() < leastRSA {
		return jose.JSONWebKey{}, fmt.Errorf("its RSA key has %d bits, fewer than %d; have the cluster sign with a larger one", public.N.BitLen(), leastRSA)
	}
	if key.Algorithm != "" && !slices.Contains(algorithms, key.Algorithm) {
		return jose.JSONWebKey{}, fmt.Errorf("alg: %.20q is none of %s; remove the key", key.Algorithm, strings.Join(algorithms, ", "))
	}
	if use := cmp.Or(key.Use, "sig"); use != "sig" {
		return jose.JSONWebKey{}, fmt.Errorf("use: %.20q is not sig; remove the key", use)
	}
	return jose.JSONWebKey{Key: key.Key, KeyID: key.KeyID, Algorithm: key.Algorithm, Use: key.Use}, nil
}

// String returns the key set as JSON.
func (k Keys) String() string { return k.text }

// Verify verifies a token of the issuer for an audience by these keys. Its errors never have the
// token.
func (k Keys) Verify(ctx context.Context, issuer, audience, raw string, now func() time.Time) (*oidc.IDToken, error) {
	return verify(ctx, &oidc.StaticKeySet{PublicKeys: k.public}, issuer, audience, raw, now)
}

// verify verifies a token: signature, issuer, audience, and that it is valid now.
func verify(ctx context.Context, keys oidc.KeySet, issuer, audience, raw string, now func() time.Time) (*oidc.IDToken, error) {
	return oidc.NewVerifier(issuer, keys, &oidc.Config{ClientID: audience, SupportedSigningAlgs: algorithms, Now: now}).Verify(ctx, raw)
}
