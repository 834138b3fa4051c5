package signin

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"
)

// Key is a secret of an agent, which its replicas share. Printing it shows nothing of it.
type Key struct{ secret [sha256.Size]byte }

// KeyOf derives the key from a secret of at least 32 bytes, which may have other uses.
func KeyOf(secret []byte) Key {
	return Key{[sha256.Size]byte(derive(secret, "visitors of Apps"))}
}

// String implements fmt.Stringer without telling the key.
func (Key) String() string { return "key of visitors' sessions" }

// GoString implements fmt.GoStringer without telling the key.
func (k Key) GoString() string { return k.String() }

// derive returns a key for one purpose. It does not reveal the secret.
func derive(secret []byte, purpose string) []byte {
	key, err := hkdf.Key(sha256.New, secret, nil, "pipeops-agent "+purpose, sha256.Size)
	if err != nil { // only for lengths that this one is not
		panic(err)
	}
	return key
}

// sealer encrypts what browsers keep, so that they can neither read nor change it.
type sealer struct{ aead cipher.AEAD }

// sealer returns the one for a purpose. What another one has sealed, it does not open.
func (k Key) sealer(purpose ...string) sealer {
	block, err := aes.NewCipher(derive(k.secret[:], framed(purpose)))
	if err != nil {
		panic(err) // the key's length is right
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err)
	}
	return sealer{aead}
}

// framed joins texts so that no two lists make the same one.
func framed(list []string) (out string) {
	for _, text := range list {
		out += strconv.Itoa(len(text)) + ":" + text
	}
	return out
}

func (s sealer) seal(text []byte, beside string) string {
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, text, []byte(beside))) //nolint:gosec // the AEAD makes the nonce at random
}

func (s sealer) open(sealed, beside string) ([]byte, bool) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(sealed)
	if err != nil || strings.ContainsAny(sealed, "\r\n") { // which the decoder skips
		return nil, false
	}
	text, err := s.aead.Open(nil, nil, raw, []byte(beside))
	return text, err == nil
}

// signingKey returns the key by which the agent vouches for visitors of a host. All replicas have
// the same one, and no two hosts.
func (k Key) signingKey(host string) *ecdsa.PrivateKey {
	for attempt := 0; ; attempt++ { // the first one is a key, but in one of 2^32 cases
		raw := derive(k.secret[:], framed([]string{"signature", host, strconv.Itoa(attempt)}))
		if key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), raw); err == nil {
			return key
		}
	}
}
