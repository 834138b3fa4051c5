package signin

import (
	"crypto"
	"crypto/ecdsa"
	_ "crypto/sha256" // for crypto.SHA256
	"encoding/hex"
	"encoding/json"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
)

const (
	// statementFor is how long a statement about a visitor is valid, and signedAgain how often the
	// one of a session is made again.
	statementFor, signedAgain = 5 * time.Minute, time.Minute
	// maxSigners bounds for how many hosts keys are remembered.
	maxSigners = 1000
)

// statement are the claims about a visitor, which the agent signs for the App.
type statement struct {
	Issuer   string   `json:"iss"` // https://HOST
	Audience string   `json:"aud"` // HOST
	Subject  string   `json:"sub"`
	Email    string   `json:"email,omitempty"` // verified
	Name     string   `json:"name,omitempty"`
	Groups   []string `json:"groups,omitempty"`
	// Service is set of the name of a service token.
	Service bool  `json:"service,omitempty"`
	Issued  int64 `json:"iat"`
	Expires int64 `json:"exp"`
}

// signer signs the statements of a host.
type signer struct {
	jose.Signer
	public []byte // the key set
}

func newSigner(key *ecdsa.PrivateKey) (signer, error) {
	public := jose.JSONWebKey{Key: key.Public(), Algorithm: string(jose.ES256), Use: "sig"}
	sum, err := public.Thumbprint(crypto.SHA256)
	if err != nil {
		return signer{}, err
	}
	public.KeyID = hex.EncodeToString(sum[:8])
	made, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: public.KeyID}},
		(&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		return signer{}, err
	}
	set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{public}})
	return signer{made, set}, err
}

// sign returns a statement as a JWT (RFC 7519).
func (s signer) sign(st statement, host string, now time.Time) (string, error) {
	st.Issuer, st.Audience = "https://"+host, host
	st.Issued, st.Expires = now.Unix(), now.Add(statementFor).Unix()
	text, err := json.Marshal(st)
	if err != nil {
		return "", err
	}
	signed, err := s.Sign(text)
	if err != nil {
		return "", err
	}
	return signed.CompactSerialize()
}

// signers remembers the signers of hosts.
type signers struct {
	mu    sync.Mutex
	known map[string]signer
}

func (s *signers) of(key Key, host string) (signer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if had, ok := s.known[host]; ok {
		return had, nil
	}
	made, err := newSigner(key.signingKey(host))
	if err != nil {
		return signer{}, err
	}
	if s.known == nil || len(s.known) >= maxSigners {
		s.known = map[string]signer{}
	}
	s.known[host] = made
	return made, nil
}
