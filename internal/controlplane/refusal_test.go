package controlplane

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operators"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/test/postgres"
	"github.com/pipeops/pipeops-vm-agent/test/storetest"
)

// TestAuthn_RefusalNamesNobody: certificates of agents and Runners are refused for one reason each.
// A refusal never comes with an ID, a name or a key: a caller could take the peer for one that has
// proven to be it.
func TestAuthn_RefusalNamesNobody(t *testing.T) {
	p := start(t)
	revoked, moved, replaced := p.registered("revoked"), p.registered("moved"), p.registered("replaced")
	_, err := p.admin.Agents.Revoke(t.Context(), revoked.id.AgentID)
	require.NoError(t, err)
	old := replaced.leaf()
	replaced.key = newKey(t)
	require.NoError(t, replaced.register(p.token()))
	revokedRunner := leafIn(t, p.runnerFor("revoked", operators.DefaultRunnerTTL))
	require.NoError(t, p.admin.Runners.Revoke(t.Context(), "revoked"))
	runner, removed := leafIn(t, p.runnerFor("ci", operators.DefaultRunnerTTL)), leafIn(t, p.runnerFor("again", operators.DefaultRunnerTTL))
	_, err = p.admin.Runners.Issue(t.Context(), operators.RunnerOptions{Name: "again", TTL: time.Hour, Replace: true})
	require.NoError(t, err)

	for name, c := range map[string]struct {
		cert    *x509.Certificate
		cluster string
	}{
		"no certificate": {}, "a revoked agent": {revoked.leaf(), revoked.uid}, "an agent in another cluster": {moved.leaf(), "elsewhere"},
		"an agent that names no cluster": {moved.leaf(), ""}, "a replaced key": {old, replaced.uid}, "a revoked Runner": {revokedRunner, ""},
		"a Runner with newer credentials": {removed, ""},
	} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.TLS = &tls.ConnectionState{}
		if c.cert != nil {
			r.TLS.PeerCertificates = []*x509.Certificate{c.cert}
		}
		r.Header.Set("Pipeops-Cluster", c.cluster)
		for as, identify := range map[string]func(*http.Request) (string, error){
			"agent": p.authn.AgentOfRequest, "runner": p.authn.RunnerOfRequest,
		} {
			id, err := identify(r)
			require.Error(t, err, "%s, as %s", name, as)
			assert.Empty(t, id, "%s, as %s", name, as)
		}
		if c.cert != nil {
			renewed, err := p.authn.Renew(r)
			require.Error(t, err, name)
			assert.Zero(t, renewed, name)
		}
	}

	// A recovery whose proof is another key's, and one with a Runner's certificate.
	other := newKey(t)
	for name, cert := range map[string]*x509.Certificate{"an agent": moved.leaf(), "a Runner": runner} {
		id, err := p.enrolment.Renew(t.Context(), "", recovery(t, cert, other))
		require.Error(t, err, name)
		assert.Zero(t, id, name)
	}
}

func (c *cluster) leaf() *x509.Certificate { return c.tlsConfig().Certificates[0].Leaf }

// recovery asks for a certificate with an expired one and a proof by some key.
func recovery(t *testing.T, cert *x509.Certificate, key *ecdsa.PrivateKey) controlapi.RenewRequest {
	t.Helper()
	req := controlapi.RenewRequest{CSR: csr(t, key), Clock: time.Now(), OldCertificate: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}))}
	var err error
	req.Proof, err = controlapi.SignRecovery(key, req.CSR, req.Clock)
	require.NoError(t, err)
	return req
}

// TestToken_StoredBeforeReturned: the database takes no more tokens. An operator who was shown one
// would hand it out.
func TestToken_StoredBeforeReturned(t *testing.T) {
	p := startOn(t, postgres.SQLite)
	kept := p.token()
	db := storetest.SQLite(t, filepath.Join(p.cfg.DataDir, datadir.FileDatabase))
	_, err := db.ExecContext(t.Context(), `CREATE TRIGGER full BEFORE INSERT ON tokens BEGIN SELECT RAISE(ABORT, 'full'); END`)
	require.NoError(t, err)

	for name, make := range map[string]func() (controlapi.Token, store.Token, error){
		"create": func() (controlapi.Token, store.Token, error) {
			return p.admin.Tokens.Create(t.Context(), operators.TokenOptions{})
		},
		"rotate": func() (controlapi.Token, store.Token, error) { return p.admin.Tokens.Rotate(t.Context(), kept.ID, 0) },
	} {
		token, stored, err := make()
		require.ErrorContains(t, err, "full", name)
		assert.Zero(t, token, name)
		assert.Zero(t, stored, name)
	}
}
