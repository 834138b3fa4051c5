// Package identity is the agent's identity: the key that never leaves the agent, the control
// plane's answer to its registration, and where both are stored. It does not connect to the control
// plane.
package identity

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/trustanchor"
)

// maxPart bounds what is taken of one stored part.
const maxPart = 256 << 10

// Identity is a key and its certificate, with the control plane's addresses and CAs. It is
// immutable: a renewal makes a new one.
type Identity struct {
	controlapi.Identity
	// Certificate is the agent's, for both ends of TLS.
	Certificate tls.Certificate
	// Roots are the CAs of the control plane, its frps and the Runners.
	Roots *x509.CertPool
	Registration

	key *ecdsa.PrivateKey
}

// Registration is what renewals keep of the registration.
type Registration struct {
	// SystemRoots reports that the control plane's HTTPS certificate is one that the system trusts
	// (a public CA's).
	SystemRoots bool `json:"systemRoots,omitempty"`
	// Token is the ID of the enrolment token.
	Token string `json:"token,omitempty"`
}

// New returns an identity from a key and the control plane's answer to its CSR.
func New(key *ecdsa.PrivateKey, answer controlapi.Identity, registration Registration) (*Identity, error) {
	keyPEM, err := encodeKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode the agent's key: %w", err)
	}
	pair, err := tls.X509KeyPair([]byte(answer.Certificate), keyPEM)
	if err != nil {
		return nil, fmt.Errorf("the certificate does not fit the agent's key: %w", err)
	}
	id := &Identity{Identity: answer, Certificate: pair, Roots: x509.NewCertPool(), Registration: registration, key: key}
	switch {
	case answer.AgentID == "":
		return nil, errors.New("the identity has no agent ID")
	case answer.ServerName == "" || pair.Leaf.VerifyHostname(answer.ServerName) != nil:
		return nil, fmt.Errorf("the certificate is not for the server name %q", answer.ServerName)
	case !trustanchor.Append(id.Roots, []byte(answer.CABundle)):
		return nil, errors.New("the identity has no CA certificate")
	}
	return id, nil
}

// Key returns the agent's private key, for signing with it.
func (id *Identity) Key() crypto.Signer { return id.key }

// Same reports whether the other is this very certificate.
func (id *Identity) Same(other *Identity) bool {
	return other != nil && bytes.Equal(id.Certificate.Leaf.Raw, other.Certificate.Leaf.Raw)
}

// WithTunnels returns the identity with other nodes to keep a tunnel to.
func (id *Identity) WithTunnels(nodes []controlapi.TunnelEndpoint) *Identity {
	other := *id
	other.Tunnels = nodes
	return &other
}

// NotAfter returns when the certificate expires.
func (id *Identity) NotAfter() time.Time { return id.Certificate.Leaf.NotAfter }

// RenewAt returns the time after two thirds of the certificate's life, which leaves a third for an
// outage of the control plane.
func (id *Identity) RenewAt() time.Time {
	leaf := id.Certificate.Leaf
	return leaf.NotAfter.Add(-leaf.NotAfter.Sub(leaf.NotBefore) / 3)
}

// The parts an Identity is stored as.
const (
	partAnswer       = "identity.json"
	partKey          = "key.pem"
	partRegistration = "registration.json"
)

// Encode returns the parts to store. They contain the private key.
func (id *Identity) Encode() (map[string][]byte, error) {
	answer, err := json.Marshal(id.Identity)
	if err != nil {
		return nil, fmt.Errorf("encode the identity: %w", err)
	}
	key, err := encodeKey(id.key)
	if err != nil {
		return nil, fmt.Errorf("encode the agent's key: %w", err)
	}
	registration, err := json.Marshal(id.Registration)
	if err != nil {
		return nil, fmt.Errorf("encode the identity: %w", err)
	}
	return map[string][]byte{partKey: key, partAnswer: answer, partRegistration: registration}, nil
}

// Decode returns an Identity from its stored parts.
func Decode(parts map[string][]byte) (*Identity, error) {
	for name, part := range parts {
		if len(part) > maxPart {
			return nil, fmt.Errorf("%s is larger than %d bytes", name, maxPart)
		}
	}
	var answer controlapi.Identity
	if err := json.Unmarshal(parts[partAnswer], &answer); err != nil {
		return nil, fmt.Errorf("%s: %w", partAnswer, err)
	}
	var registration Registration
	if err := json.Unmarshal(parts[partRegistration], &registration); err != nil {
		return nil, fmt.Errorf("%s: %w", partRegistration, err)
	}
	key, err := decodeKey(parts, partKey)
	if err != nil {
		return nil, err
	}
	return New(key, answer, registration)
}
