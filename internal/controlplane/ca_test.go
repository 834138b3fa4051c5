package controlplane

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operators"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// TestCARoot_KeptOffline exports the root's key beside a control plane that serves, lets it work
// on, and rotates once the key is back.
func TestCARoot_KeptOffline(t *testing.T) {
	p := start(t)
	file := filepath.Join(t.TempDir(), "root.pem")
	status, err := p.admin.CA.ExportRoot(t.Context(), file)
	require.NoError(t, err)
	assert.True(t, status.RootAway)
	await.Until(t, "the control plane forgets the key", p.ca.RootAway)
	text, err := os.ReadFile(filepath.Join(p.cfg.DataDir, datadir.FileCA))
	require.NoError(t, err)
	key, err := os.ReadFile(file)
	require.NoError(t, err)
	_, secret, found := strings.Cut(string(key), "-----BEGIN PRIVATE KEY-----")
	require.True(t, found)
	assert.NotContains(t, string(text), secret)

	c := p.registered("shop")
	c.beatCAs()
	require.NoError(t, p.snapshotBy(p.login(p.runner("builder"))))
	var away *ca.RootAwayError
	require.ErrorAs(t, p.rotate(ca.Start, operators.RotateOptions{}), &away)
	_, renewed, err := p.admin.CA.ImportRoot(t.Context(), file)
	require.NoError(t, err)
	assert.False(t, renewed)
	p.requireRotate(false, ca.Start)
	c.beatCAs()
	c.beatCAs()
	p.requireRotate(false, ca.Sign)
}

// TestIntermediateCA_RenewedWhileServing: agents follow.
func TestIntermediateCA_RenewedWhileServing(t *testing.T) {
	p := start(t)
	before := p.ca.SignerID(ca.RoleAgent)
	p.clock.forward(p.ca.IntermediatesEnd().Sub(p.clock.now()) - ca.RenewBefore - time.Hour)
	c := p.registered("shop")
	c.beatCAs()
	p.clock.forward(2 * time.Hour)
	await.Until(t, "the intermediate CAs are renewed", func() bool { return p.ca.IntermediatesEnd().Sub(p.clock.now()) > ca.RenewBefore })
	assert.Equal(t, before, p.ca.SignerID(ca.RoleAgent), "other control planes have a moment to learn of it")
	assert.Zero(t, c.beatCAs().RenewWithin)
	p.clock.forward(2 * time.Minute)
	assert.NotEqual(t, before, p.ca.SignerID(ca.RoleAgent))
	assert.Equal(t, 600, c.beatCAs().RenewWithin)
	c.renew()
	assert.Zero(t, c.beatCAs().RenewWithin)
	tun, down := c.connect()
	defer down()
	c.answer(tun)
	await.Until(t, "connected", func() bool { return p.tunnels.own.Connected(c.id.AgentID) })
	down()
}

// stolenKeys returns the intermediate CAs in the control plane's file with their keys, and its
// root.
func (p *plane) stolenKeys() map[string]tls.Certificate {
	p.t.Helper()
	text, err := os.ReadFile(filepath.Join(p.cfg.DataDir, datadir.FileCA))
	require.NoError(p.t, err)
	keys := map[string]tls.Certificate{}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		cert, err := x509.ParseCertificate(block.Bytes)
		require.NoError(p.t, err)
		block, rest = pem.Decode(rest)
		key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		require.NoError(p.t, err)
		name := "root"
		if len(cert.URIs) > 0 {
			name = strings.TrimPrefix(cert.URIs[0].Path, "/ca/")
		}
		keys[name] = tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}
	}
	require.Len(p.t, keys, 6)
	return keys
}

// forge makes the same certificate for the same key by another CA.
func forge(t *testing.T, like *x509.Certificate, by tls.Certificate) *x509.Certificate {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: new(big.Int).Set(like.SerialNumber), Subject: like.Subject, URIs: like.URIs, DNSNames: like.DNSNames,
		NotBefore: like.NotBefore, NotAfter: like.NotAfter, KeyUsage: like.KeyUsage, ExtKeyUsage: like.ExtKeyUsage,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.Leaf, like.PublicKey, by.PrivateKey.(*ecdsa.PrivateKey))
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return cert
}

// TestIntermediateCA_OtherRoleRefused: each CA but the right one certifies an agent's and a
// Runner's own key, so that nothing but the signer is wrong.
func TestIntermediateCA_OtherRoleRefused(t *testing.T) {
	p := start(t)
	c := p.registered("shop")
	keys := p.stolenKeys()
	agent, err := ca.ParseCertificate(c.id.Certificate)
	require.NoError(t, err)
	l := p.login(p.runner("builder"))
	runner, err := l.Certificate()
	require.NoError(t, err)
	for name, by := range keys {
		leaf := forge(t, agent, by)
		_, err := p.authn.AgentOfTunnel(tls.ConnectionState{PeerCertificates: certs(leaf)})
		if name == ca.RoleAgent {
			require.NoError(t, err)
		} else {
			requireProblem(t, err, controlapi.CodeCertificateUnknown)
		}
		leaf = forge(t, runner.Leaf, by)
		err = p.asRunner(tls.Certificate{Certificate: [][]byte{leaf.Raw, by.Leaf.Raw}, PrivateKey: runner.PrivateKey, Leaf: leaf}, http.MethodGet, announce.SnapshotPath)
		if name == ca.RoleRunner {
			require.NoError(t, err)
		} else {
			requireProblem(t, err, controlapi.CodeCertificateUnknown)
		}
	}
}

func (p *plane) issued(o operators.IssuedOptions) []operators.IssuedCertificate {
	p.t.Helper()
	o.Limit = 100
	list, err := p.admin.CA.Issued(p.t.Context(), o)
	require.NoError(p.t, err)
	return list
}

// TestCertificate_Logged issues certificates in each way that there is for agents and Runners.
func TestCertificate_Logged(t *testing.T) {
	p := start(t)
	c := p.registered("shop")
	c.renew()
	p.runner("ci")
	leaf, err := ca.ParseCertificate(c.id.Certificate)
	require.NoError(t, err)

	ofShop := p.issued(operators.IssuedOptions{Name: "shop"})
	require.Len(t, ofShop, 2)
	assert.Equal(t, "renewal", ofShop[0].Reason)
	assert.Contains(t, ofShop[1].Reason, "registration with token ")
	assert.Equal(t, "shop", ofShop[0].AgentName)
	assert.Equal(t, leaf.SerialNumber.Text(16), ofShop[0].Serial)
	assert.Equal(t, p.ca.SignerID(ca.RoleAgent), ofShop[0].Issuer)

	_, err = p.admin.Runners.Grant(t.Context(), "ci", credentials.Grant{}, "")
	require.NoError(t, err)
	ofRunner := p.issued(operators.IssuedOptions{Kind: ca.RoleRunner})
	require.Len(t, ofRunner, 2)
	assert.Equal(t, []string{"runner grant", "runner create"}, []string{ofRunner[0].Reason, ofRunner[1].Reason})
	assert.NotEmpty(t, p.issued(operators.IssuedOptions{Kind: ca.RoleCA}))
	assert.NotEmpty(t, p.issued(operators.IssuedOptions{Kind: ca.RoleServer}))
	_, err = p.ca.ControlPlane(credentials.ControlPlaneURI(p.cfg.TrustDomain), time.Hour)
	require.NoError(t, err)
	assert.NotEqual(t, ca.RoleControlPlane, p.issued(operators.IssuedOptions{})[0].Role, "there are too many of them")
	assert.NotEmpty(t, p.issued(operators.IssuedOptions{Kind: ca.RoleControlPlane}))
}
