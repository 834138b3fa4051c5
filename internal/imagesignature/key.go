package imagesignature

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
)

// The bounds of keys.
const (
	MaxKeys    = 16
	maxKey     = 16 << 10
	minRSABits = 2048
)

// Key is a public key that signs images.
type Key struct {
	public crypto.PublicKey
	sum    string
}

// ReadKey reads a public key in PEM, as `cosign generate-key-pair` writes cosign.pub.
func ReadKey(text string) (Key, error) {
	block, rest := pem.Decode([]byte(text))
	switch {
	case len(text) > maxKey:
		return Key{}, fmt.Errorf("has more than %d KiB", maxKey>>10)
	case strings.Contains(text, "PRIVATE KEY"):
		return Key{}, errors.New("is a private key: give the public one (cosign.pub), and replace the key, which others may have read")
	case block == nil || block.Type != "PUBLIC KEY" || strings.TrimSpace(string(rest)) != "":
		return Key{}, errors.New("is not one public key in PEM, as cosign.pub: -----BEGIN PUBLIC KEY-----")
	}
	public, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return Key{}, errors.New("is not a public key that can be read")
	}
	switch public := public.(type) {
	case *ecdsa.PublicKey, ed25519.PublicKey:
	case *rsa.PublicKey:
		if public.N.BitLen() < minRSABits {
			return Key{}, fmt.Errorf("is an RSA key of %d bits: at least %d are needed", public.N.BitLen(), minRSABits)
		}
	default:
		return Key{}, errors.New("is of a type that is not supported: ECDSA, Ed25519 and RSA are")
	}
	sum := sha256.Sum256(block.Bytes)
	return Key{public: public, sum: hex.EncodeToString(sum[:])}, nil
}

// Fingerprint returns the SHA-256 of the key, as SubjectPublicKeyInfo.
func (k Key) Fingerprint() string { return "sha256:" + k.sum }

// String returns the key's type, and the beginning of its fingerprint.
func (k Key) String() string {
	kind := "Ed25519"
	switch k.public.(type) {
	case *ecdsa.PublicKey:
		kind = "ECDSA"
	case *rsa.PublicKey:
		kind = "RSA"
	}
	return fmt.Sprintf("%s key sha256:%.16s…", kind, k.sum)
}

// verifies reports whether the key has signed a message. Versions of cosign differ in the hash for
// large ECDSA keys, and in whether Ed25519 signs a hash.
func (k Key) verifies(message, signature []byte) bool {
	short, long, longest := sha256.Sum256(message), sha512.Sum384(message), sha512.Sum512(message)
	switch public := k.public.(type) {
	case *ecdsa.PublicKey:
		return ecdsa.VerifyASN1(public, short[:], signature) ||
			public.Params().BitSize == 384 && ecdsa.VerifyASN1(public, long[:], signature) ||
			public.Params().BitSize == 521 && ecdsa.VerifyASN1(public, longest[:], signature)
	case ed25519.PublicKey:
		return ed25519.Verify(public, message, signature) ||
			ed25519.VerifyWithOptions(public, longest[:], signature, &ed25519.Options{Hash: crypto.SHA512}) == nil
	case *rsa.PublicKey:
		return rsa.VerifyPKCS1v15(public, crypto.SHA256, short[:], signature) == nil
	}
	return false
}
