package ca

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// keySize is a Key's in bytes.
const keySize = 32

// Key encrypts a CA that is kept where others read: in a database, and its backups.
// Printing it shows nothing of it.
type Key struct{ secret *[keySize]byte }

// NewKey returns a random key.
func NewKey() Key {
	var secret [keySize]byte
	_, _ = rand.Read(secret[:]) // never fails: crypto/rand ends the process
	return Key{&secret}
}

// ErrBadKey describes the format of a key. It quotes nothing.
var ErrBadKey = errors.New("holds no key: one is 32 random bytes in base64, as `pipeops-controlplane ca key create` makes it")

// ParseKey parses the output of Text.
func ParseKey(text string) (Key, error) {
	raw, err := base64.StdEncoding.Strict().DecodeString(strings.TrimSpace(text))
	if err != nil || len(raw) != keySize {
		return Key{}, ErrBadKey
	}
	return Key{(*[keySize]byte)(raw)}, nil
}

// Text returns the key itself, in base64.
func (k Key) Text() string { return base64.StdEncoding.EncodeToString(k.secret[:]) }

// Given reports whether there is one.
func (k Key) Given() bool { return k.secret != nil }

// String implements fmt.Stringer without telling the key.
func (k Key) String() string { return "key of a CA" }

// GoString implements fmt.GoStringer without telling the key.
func (k Key) GoString() string { return k.String() }

// Derive returns a key for one purpose. It does not reveal k, and is of no use for other purposes.
func (k Key) Derive(purpose string) (Key, error) {
	raw, err := hkdf.Key(sha256.New, k.secret[:], nil, "derived key: "+purpose, keySize)
	if err != nil {
		return Key{}, err
	}
	return Key{(*[keySize]byte)(raw)}, nil
}

// Bytes returns the key itself.
func (k Key) Bytes() []byte { return k.secret[:] }

// Seal encrypts a text that can only be read for the same purpose: AES-256-GCM with a key of that
// purpose, so that one Key serves several.
func (k Key) Seal(text []byte, purpose string) (string, error) {
	aead, err := k.aead(purpose)
	if err != nil {
		return "", err
	}
	return base64.StdEncoding.EncodeToString(aead.Seal(nil, nil, text, []byte(purpose))), nil //nolint:gosec // it makes a nonce by itself
}

// ErrSealed reports that a sealed text cannot be opened.
var ErrSealed = errors.New("it was sealed with another key, or is damaged")

// Unseal decrypts the output of Seal.
func (k Key) Unseal(sealed, purpose string) ([]byte, error) {
	aead, err := k.aead(purpose)
	if err != nil {
		return nil, err
	}
	if len(sealed) > 2*maxFile {
		return nil, ErrSealed
	}
	raw, err := base64.StdEncoding.DecodeString(sealed)
	if err != nil {
		return nil, ErrSealed
	}
	text, err := aead.Open(nil, nil, raw, []byte(purpose))
	if err != nil {
		return nil, ErrSealed
	}
	return text, nil
}

func (k Key) aead(purpose string) (cipher.AEAD, error) {
	if !k.Given() {
		return nil, errors.New("there is no key")
	}
	key, err := hkdf.Key(sha256.New, k.secret[:], nil, "pipeops-controlplane "+purpose, keySize)
	if err != nil {
		return nil, fmt.Errorf("derive a key: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}
