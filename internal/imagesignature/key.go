package imagesignature

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/verify"
	algorithm "github.com/sigstore/sigstore/pkg/signature"
)

// The bounds of keys.
const (
	MaxKeys    = 16
	maxKey     = 16 << 10
	minRSABits = 2048
)

// ReadKey reads a public key in PEM, as `cosign generate-key-pair` writes cosign.pub.
func ReadKey(text string) (Signer, error) {
	block, rest := pem.Decode([]byte(text))
	switch {
	case len(text) > maxKey:
		return Signer{}, fmt.Errorf("has more than %d KiB", maxKey>>10)
	case strings.Contains(text, "PRIVATE KEY"):
		return Signer{}, errors.New("is a private key: give the public one (cosign.pub), and replace the key, which others may have read")
	case block == nil || block.Type != "PUBLIC KEY" || strings.TrimSpace(string(rest)) != "":
		return Signer{}, errors.New("is not one public key in PEM, as cosign.pub: -----BEGIN PUBLIC KEY-----")
	}
	public, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return Signer{}, errors.New("is not a public key that can be read")
	}
	kind, algorithms, err := algorithmsOf(public)
	if err != nil {
		return Signer{}, err
	}
	id := fmt.Sprintf("sha256:%x", sha256.Sum256(block.Bytes))
	s := Signer{id: id, text: fmt.Sprintf("%s key %.23s…", kind, id), policy: verify.WithKey()}
	for _, a := range algorithms {
		key := root.NewExpiringKey(a, time.Time{}, time.Time{}) // it counts as long as it is listed
		v, err := verify.NewVerifier(root.NewTrustedPublicKeyMaterial(func(string) (root.TimeConstrainedVerifier, error) { return key, nil }),
			verify.WithNoObserverTimestamps())
		if err != nil {
			return Signer{}, err
		}
		s.verifiers = append(s.verifiers, v)
	}
	return s, nil
}

// algorithmsOf returns how a key may sign. Versions of cosign differ in the hash for large ECDSA
// keys, and in whether Ed25519 signs a hash.
func algorithmsOf(public crypto.PublicKey) (kind string, algorithms []algorithm.Verifier, err error) {
	add := func(v algorithm.Verifier, wrong error) {
		algorithms, err = append(algorithms, v), errors.Join(err, wrong)
	}
	switch public := public.(type) {
	case *ecdsa.PublicKey:
		kind = "ECDSA"
		add(algorithm.LoadECDSAVerifier(public, crypto.SHA256))
		switch public.Params().BitSize {
		case 384:
			add(algorithm.LoadECDSAVerifier(public, crypto.SHA384))
		case 521:
			add(algorithm.LoadECDSAVerifier(public, crypto.SHA512))
		}
	case ed25519.PublicKey:
		kind = "Ed25519"
		add(algorithm.LoadED25519Verifier(public))
		add(algorithm.LoadED25519phVerifier(public))
	case *rsa.PublicKey:
		if public.N.BitLen() < minRSABits {
			return "", nil, fmt.Errorf("is an RSA key of %d bits: at least %d are needed", public.N.BitLen(), minRSABits)
		}
		kind = "RSA"
		add(algorithm.LoadRSAPKCS1v15Verifier(public, crypto.SHA256))
	default:
		return "", nil, errors.New("is of a type that is not supported: ECDSA, Ed25519 and RSA are")
	}
	if err != nil {
		return "", nil, errors.New("is not a public key that can be used")
	}
	return kind, algorithms, nil
}
