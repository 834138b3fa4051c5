package ca

import (
	"crypto/rand"
	"crypto/x509"
	"net"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/trustanchor"
	"github.com/pipeops/pipeops-vm-agent/test/selfsigned"
)

func (c *rotating) upkeep() bool {
	c.t.Helper()
	changed, err := c.Upkeep()
	require.NoError(c.t, err)
	return changed
}

// issue issues a Runner's certificate.
func (c *rotating) issue(trust string, ttl time.Duration) (*x509.Certificate, error) {
	c.t.Helper()
	issued, _, err := c.Client("ci", &url.URL{Scheme: "spiffe", Host: trust, Path: "/runner/ci"}, ttl, "test")
	if err != nil {
		return nil, err
	}
	return ParseCertificate(issued.Certificate)
}

// export moves the roots' keys away and returns them.
func (c *rotating) export() []byte {
	c.t.Helper()
	keys, err := c.RootKeys()
	require.NoError(c.t, err)
	require.NotEmpty(c.t, keys)
	require.NoError(c.t, c.ForgetRootKeys(keys))
	return keys
}

// forged returns a certificate with those names, signed by any CA, which has not judged it.
func forged(t *testing.T, by pair, id *url.URL, dns string, usage ...x509.ExtKeyUsage) *x509.Certificate {
	t.Helper()
	key := selfsigned.Key(t)
	serial, err := newSerial()
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: serial, NotBefore: noon.Add(-time.Hour), NotAfter: noon.Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: usage,
	}
	if id != nil {
		template.URIs = []*url.URL{id}
	}
	if ip := net.ParseIP(dns); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else if dns != "" {
		template.DNSNames = []string{dns}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.cert, key.Public(), by.key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return cert
}

// standard verifies as crypto/tls does, with the root CA as the only root.
func standard(c *CA, leaf *x509.Certificate, by pair, dns string, usage x509.ExtKeyUsage) ([][]*x509.Certificate, error) {
	opts := x509.VerifyOptions{
		DNSName: dns, Roots: c.Pool(), Intermediates: x509.NewCertPool(), CurrentTime: noon, KeyUsages: []x509.ExtKeyUsage{usage},
	}
	opts.Intermediates.AddCert(by.cert)
	return leaf.Verify(opts)
}

var (
	client = x509.ExtKeyUsageClientAuth
	server = x509.ExtKeyUsageServerAuth
)

// TestIntermediateCA_SignsForItsRole has each CA sign a certificate of each role, as a thief of its
// key would. Only the verifiers of the right pair accept it.
func TestIntermediateCA_SignsForItsRole(t *testing.T) {
	c := newRotating(t)
	signing := &c.state.Load().signing
	signers := map[string]pair{"root": signing.pair}
	for _, role := range leafRoles {
		signers[role] = signing.signer(role, c.now)
		assert.True(t, signers[role].cert.MaxPathLenZero)
		assert.Equal(t, role, trustanchor.RoleOf(signers[role].cert))
	}
	for name, by := range signers {
		for _, role := range []string{RoleAgent, RoleRunner, RoleControlPlane} {
			leaf := forged(t, by, spiffe("/"+role+"/x"), "", client)
			good := name == role
			assert.Equal(t, good, c.Verify(leaf, c.now) == nil, "the control plane: %s by %s", role, name)
			_, err := leaf.Verify(x509.VerifyOptions{Roots: c.PoolFor(role), CurrentTime: c.now, KeyUsages: []x509.ExtKeyUsage{client}})
			assert.Equal(t, good, err == nil, "a listener for the role: %s by %s", role, name)
			chains, err := standard(c.CA, leaf, by, "", client)
			if err == nil {
				err = trustanchor.SignedFor(chains, "trust", role)
			}
			assert.Equal(t, good, err == nil, "agents and Runners: %s by %s: %v", role, name, err)
		}
	}
}

// TestIntermediateCA_NameConstraints is for verifiers that know nothing of roles.
func TestIntermediateCA_NameConstraints(t *testing.T) {
	c := newRotating(t)
	signing := &c.state.Load().signing
	agentOf := func(host string) *url.URL { return &url.URL{Scheme: "spiffe", Host: host, Path: "/agent/a"} }
	for name, v := range map[string]struct {
		role  string
		id    *url.URL
		dns   string
		usage x509.ExtKeyUsage
		ok    bool
	}{
		"an agent":                                 {RoleAgent, agentOf("trust"), "a.agents", server, true},
		"an agent of another trust domain":         {RoleAgent, agentOf("other"), "a.agents", client, false},
		"an agent as the control plane's listener": {RoleAgent, nil, "control.example.com", server, false},
		"an agent as an address":                   {RoleAgent, nil, "192.0.2.1", server, false},
		"a Runner":                                 {RoleRunner, agentOf("trust"), "", client, true},
		"a Runner of another trust domain":         {RoleRunner, agentOf("other"), "", client, false},
		"a Runner as a listener":                   {RoleRunner, nil, "control.example.com", server, false},
		"a listener":                               {RoleServer, nil, "control.example.com", server, true},
		"a listener's address":                     {RoleServer, nil, "192.0.2.1", server, true},
		"a listener as a client":                   {RoleServer, nil, "control.example.com", client, false},
		"a listener with an identity":              {RoleServer, agentOf("trust"), "control.example.com", server, false},
		"a control plane among others":             {RoleControlPlane, agentOf("trust"), "n.controlplane.trust", server, true},
		"a control plane as the listener":          {RoleControlPlane, nil, "control.example.com", server, false},
		"a control plane as an agent":              {RoleControlPlane, agentOf("trust"), "a.agents", server, false},
	} {
		by := signing.signer(v.role, c.now)
		dns := v.dns
		_, err := standard(c.CA, forged(t, by, v.id, v.dns, v.usage), by, dns, v.usage)
		assert.Equal(t, v.ok, err == nil, "%s: %v", name, err)
	}
	t.Run("and signs no further CA", func(t *testing.T) {
		by := signing.signer(RoleAgent, c.now)
		next := authority{pair: by}
		below, err := next.intermediate(RoleRunner, domains, c.now)
		require.NoError(t, err)
		leaf := forged(t, below, spiffe("/runner/x"), "", client)
		opts := x509.VerifyOptions{Roots: c.Pool(), Intermediates: x509.NewCertPool(), CurrentTime: c.now, KeyUsages: []x509.ExtKeyUsage{client}}
		opts.Intermediates.AddCert(by.cert)
		opts.Intermediates.AddCert(below.cert)
		_, err = leaf.Verify(opts)
		require.Error(t, err)
	})
}

func TestIntermediateCA_Renewed(t *testing.T) {
	c := newRotating(t)
	issue := func() *x509.Certificate {
		t.Helper()
		cert, err := c.issue("trust", 365*24*time.Hour)
		require.NoError(t, err)
		return cert
	}
	assert.False(t, c.upkeep())
	c.now = c.IntermediatesEnd().Add(-RenewBefore)
	assert.False(t, c.upkeep(), "not yet")
	early := issue()
	assert.Equal(t, c.now.Add(365*24*time.Hour), early.NotAfter, "a year fits")

	c.now = c.now.Add(time.Hour)
	assert.True(t, c.upkeep())
	assert.False(t, c.upkeep())
	assert.Equal(t, KeyID(c.state.Load().signing.newest(RoleRunner).cert), KeyID(c.Intermediates()[1]))
	assert.True(t, c.Current(issue()), "the old one signs until all control planes know the new one")
	assert.True(t, c.Current(early))
	c.now = c.now.Add(settle)
	late := issue()
	assert.True(t, c.Current(late))
	assert.False(t, c.Current(early), "its holder renews")
	assert.Equal(t, c.SignerID(RoleRunner), IssuerID(late))
	for _, cert := range []*x509.Certificate{early, late} {
		require.NoError(t, c.Verify(cert, c.now))
		assert.True(t, c.Trusted(cert))
		assert.Equal(t, KeyID(c.Certificate()), c.RootID(cert))
	}
	c.now = c.IntermediatesEnd().Add(-time.Hour)
	assert.True(t, c.upkeep())
	keys := 0
	for _, i := range c.state.Load().signing.intermediates {
		if i.key != nil {
			keys++
		}
	}
	assert.Len(t, c.state.Load().signing.intermediates, 15)
	assert.Equal(t, 10, keys, "what was replaced twice has no key")
	require.NoError(t, c.Verify(early, early.NotAfter), "its certificates are recognized for ever")
}

func TestIntermediateCA_ChangedDomains(t *testing.T) {
	c := newRotating(t)
	c.reopen(Domains{Trust: "other", Agents: "agents.other"})
	assert.True(t, c.upkeep())
	cert, err := c.issue("other", time.Hour)
	require.NoError(t, err)
	require.NoError(t, c.Verify(cert, c.now), "at once")
	assert.False(t, c.upkeep())
	c.export()
	c.reopen(domains)
	_, err = c.Upkeep()
	var away *RootAwayError
	require.ErrorAs(t, err, &away)
}

func TestRootKey_Exported(t *testing.T) {
	c := newRotating(t)
	keys := c.export()
	assert.True(t, c.RootAway())
	text, err := inFile(c.file).Load()
	require.NoError(t, err)
	s, err := parse(text)
	require.NoError(t, err)
	assert.Nil(t, s.signing.key, "nor in the file")
	left, err := c.RootKeys()
	require.NoError(t, err)
	assert.Empty(t, left)

	_, err = c.issue("trust", time.Hour)
	require.NoError(t, err, "certificates are issued as before")
	var away *RootAwayError
	_, err = c.Take(Start)
	require.ErrorAs(t, err, &away)
	require.ErrorContains(t, err, "ca root import")
	c.now = c.IntermediatesEnd().Add(-RenewBefore + time.Hour)
	_, err = c.Upkeep()
	require.ErrorAs(t, err, &away)
	require.NoError(t, c.Ended(), "there is a year left")
	c.now = c.IntermediatesEnd().Add(time.Hour)
	require.ErrorAs(t, c.Ended(), &away)
	_, err = c.issue("trust", time.Hour)
	require.ErrorAs(t, err, &away)

	require.NoError(t, c.ImportRootKeys(keys))
	assert.False(t, c.RootAway())
	require.NoError(t, c.Ended(), "it is renewed in a moment")
	assert.True(t, c.upkeep())
	cert, err := c.issue("trust", time.Hour)
	require.NoError(t, err)
	require.NoError(t, c.Verify(cert, c.now), "by the new one at once, where the old one has ended")
	_, err = c.Take(Start)
	require.NoError(t, err)
}

// TestRotation_WithoutRootKey takes the later steps, which need no root key.
func TestRotation_WithoutRootKey(t *testing.T) {
	c := newRotating(t)
	_, err := c.Take(Start)
	require.NoError(t, err)
	keys := c.export()
	roots, err := parseRoots(keys)
	require.NoError(t, err)
	assert.Len(t, roots, 2)
	for _, step := range []Step{Sign, Abort, Sign, Finish} {
		changed, err := c.Take(step)
		require.NoError(t, err)
		assert.True(t, changed)
	}
	assert.True(t, c.RootAway())
	require.NoError(t, c.ImportRootKeys(keys), "one of them is of no more use")
	_, err = c.Take(Start)
	require.NoError(t, err)
}

func TestRootKey_RefusesWrongFile(t *testing.T) {
	c, other := newRotating(t), newRotating(t)
	foreign, err := other.RootKeys()
	require.NoError(t, err)
	own, err := c.RootKeys()
	require.NoError(t, err)
	for _, stored := range [][]byte{nil, foreign, own[:len(own)/2], encodeCert(c.Certificate().Raw)} {
		require.Error(t, c.ForgetRootKeys(stored))
		assert.False(t, c.RootAway())
	}
	c.export()
	for _, wrong := range [][]byte{nil, foreign, own[:len(own)/2], []byte("nonsense"), encodeCert(c.Certificate().Raw)} {
		require.Error(t, c.ImportRootKeys(wrong))
		assert.True(t, c.RootAway())
	}
}

// FuzzRootKeys reads files that have keys of certificates, or are refused.
func FuzzRootKeys(f *testing.F) {
	c, err := Open(filepath.Join(f.TempDir(), "ca.pem"), domains, noLog, time.Now)
	require.NoError(f, err)
	keys, err := c.RootKeys()
	require.NoError(f, err)
	f.Add(keys)
	f.Add(append(keys, keys...))
	f.Add(encodeCert(c.Certificate().Raw))
	f.Fuzz(func(t *testing.T, text []byte) {
		roots, err := parseRoots(text)
		if (err == nil) != (len(roots) > 0) {
			t.Fatal("neither keys nor an error")
		}
		for _, p := range roots {
			if p.key == nil {
				t.Fatal("a certificate without a key")
			}
		}
	})
}
