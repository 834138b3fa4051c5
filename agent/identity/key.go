package identity

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
)

// NewKey returns a new key for one certificate. P-256 is small, fast, and supported everywhere.
func NewKey() (*ecdsa.PrivateKey, error) {
	return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
}

// CSR returns the PEM certificate request for key. It contains no name: the control plane decides
// what the certificate contains.
func CSR(key *ecdsa.PrivateKey) (string, error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return "", fmt.Errorf("make the certificate request: %w", err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})), nil
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// decodeKey decodes a key from stored parts.
func decodeKey(parts map[string][]byte, part string) (*ecdsa.PrivateKey, error) {
	if len(parts[part]) > maxPart {
		return nil, fmt.Errorf("%s is larger than %d bytes", part, maxPart)
	}
	block, _ := pem.Decode(parts[part])
	if block == nil {
		return nil, fmt.Errorf("%s: no PEM block", part)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: not a PKCS #8 key", part)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s: not an ECDSA key", part)
	}
	return key, nil
}
