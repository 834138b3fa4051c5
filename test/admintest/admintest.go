// Package admintest gives a test the data of a control plane that has served, with the operator's
// commands. Nothing serves it.
package admintest

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/castore"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/test/selfsigned"
)

// Noon is the time at which the clock of the data begins.
var Noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// Plane is the data of a control plane in a directory of the test.
type Plane struct {
	*administration.Admin
	Data datadir.Data
	CA   *ca.CA

	ahead atomic.Int64
}

// Open makes the data, with the CA and the SQLite database.
func Open(t *testing.T) *Plane {
	t.Helper()
	p := &Plane{Data: datadir.Data{Dir: t.TempDir()}}
	var err error
	p.Admin, err = administration.Make(t.Context(), p.Data, p.Clock)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, p.Close()) })
	require.NoError(t, datadir.SaveAdvertised(t.Context(), p.Database(), datadir.Advertised{
		API: "https://cp.example.com:8443", Tunnel: "cp.example.com:7000", Edge: "cp.example.com:9443",
		AgentsDomain: datadir.DefaultAgentsDomain, TrustDomain: datadir.DefaultTrustDomain,
	}))
	domains := ca.Domains{Trust: datadir.DefaultTrustDomain, Agents: datadir.DefaultAgentsDomain}
	p.CA, err = castore.Open(t.Context(), p.Data, p.Database(), domains, p.Clock, true)
	require.NoError(t, err)
	return p
}

// Clock returns the time, which only Advance changes.
func (p *Plane) Clock() time.Time { return Noon.Add(time.Duration(p.ahead.Load())) }

// Advance puts the clock ahead.
func (p *Plane) Advance(d time.Duration) { p.ahead.Add(int64(d)) }

// Agent adds an agent that is online, in the cluster uid-NAME.
func (p *Plane) Agent(t *testing.T, name string, change ...func(*store.Agent)) store.Agent {
	t.Helper()
	a := store.Agent{
		ID: "id-" + name, Name: name, ClusterUID: "uid-" + name, State: announce.StateOnline, EdgeAddress: "cp.example.com:9443",
		AgentVersion: "v1.1.0", RegisteredAt: p.Clock(), LastSeen: p.Clock(),
	}
	for _, c := range change {
		c(&a)
	}
	require.NoError(t, p.Database().InsertAgent(t.Context(), a))
	return a
}

// Operator makes an operator's credentials.
func (p *Plane) Operator(t *testing.T, name, role string, change ...func(*administration.OperatorOptions)) administration.Credentials {
	t.Helper()
	opts := administration.OperatorOptions{Name: name, Role: role, TTL: time.Hour}
	for _, c := range change {
		c(&opts)
	}
	made, err := p.Operators.Create(t.Context(), opts)
	require.NoError(t, err)
	return made
}

// Announced returns the types of the events in the outbox.
func (p *Plane) Announced(t *testing.T) (types []announce.Type) {
	t.Helper()
	queued, err := p.Database().Outbox(t.Context(), 100)
	require.NoError(t, err)
	for _, q := range queued {
		types = append(types, q.Event.Type)
	}
	return types
}

// Certificate parses a certificate.
func Certificate(t *testing.T, text string) *x509.Certificate {
	t.Helper()
	cert, err := ca.ParseCertificate(text)
	require.NoError(t, err)
	return cert
}

// CallBy returns a request to the control plane with a client certificate, or without one, from an
// agent's cluster.
func CallBy(t *testing.T, certificate, cluster string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", http.NoBody)
	r.TLS = &tls.ConnectionState{}
	if certificate != "" {
		r.TLS.PeerCertificates = []*x509.Certificate{Certificate(t, certificate)}
	}
	r.Header.Set("PipeOps-Cluster", cluster)
	return r
}

// Request makes a key, a certificate request with it, and the key's fingerprint.
func Request(t *testing.T) (key *ecdsa.PrivateKey, csr, fingerprint string) {
	t.Helper()
	key = selfsigned.Key(t)
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	require.NoError(t, err)
	parsed, err := x509.ParseCertificateRequest(der)
	require.NoError(t, err)
	csr = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
	return key, csr, controlapi.Fingerprint(&x509.Certificate{RawSubjectPublicKeyInfo: parsed.RawSubjectPublicKeyInfo})
}

// Refused checks an error's code and that it has all words, in the detail or in the fix.
func Refused(t *testing.T, err error, code problem.Code, words ...string) {
	t.Helper()
	require.Truef(t, problem.Is(err, code), "want %s, got %v", code, err)
	for _, w := range words {
		require.ErrorContains(t, err, w)
	}
}
