package identity

import (
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
)

// EncodeKey makes the parts of an identity that is still asked for: the key
// alone. It is stored before the request is sent, so that an agent that dies
// before the answer asks with the same key again, which is the same request.
func EncodeKey(key *ecdsa.PrivateKey) (map[string][]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode the agent's key: %w", err)
	}
	return map[string][]byte{partKey: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})}, nil
}

// Pending says whether the parts are those of EncodeKey.
func Pending(parts map[string][]byte) bool {
	return len(parts[partKey]) > 0 && len(parts[partAnswer]) == 0
}

// DecodeKey reads the key from stored parts.
func DecodeKey(parts map[string][]byte) (*ecdsa.PrivateKey, error) {
	if len(parts[partKey]) > maxPart {
		return nil, fmt.Errorf("%s is larger than %d bytes", partKey, maxPart)
	}
	block, _ := pem.Decode(parts[partKey])
	if block == nil {
		return nil, fmt.Errorf("%s: no PEM block", partKey)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: not a PKCS #8 key", partKey)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s: not an ECDSA key", partKey)
	}
	return key, nil
}
