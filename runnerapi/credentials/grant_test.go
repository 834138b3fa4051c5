package credentials_test

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
)

func grant(t testing.TB, text string) credentials.Grant {
	t.Helper()
	g, err := credentials.ParseGrant(text)
	require.NoError(t, err)
	return g
}

// granted is a certificate's template with a grant.
func granted(t testing.TB, text string) func(*x509.Certificate) {
	t.Helper()
	extensions, err := grant(t, text).Extensions()
	require.NoError(t, err)
	return func(c *x509.Certificate) { c.ExtraExtensions = extensions }
}

func TestGrant_Allows(t *testing.T) {
	prod := map[string]string{"env": "prod", "region": "eu"}
	for text, allowed := range map[string]bool{
		"": true, " ": true, "env=prod": true, "env=prod,region in (eu,us)": true, "!gpu": true, "env!=test": true,
		"env=test": false, "region notin (eu)": false, "gpu": false, "env=prod,gpu": false,
	} {
		assert.Equal(t, allowed, grant(t, text).Allows(prod), text)
	}
	assert.True(t, grant(t, "").All())
	assert.False(t, grant(t, "env=prod").Allows(nil), "an agent without labels")
	assert.Equal(t, "env=prod,region in (eu,us)", grant(t, "region in (us, eu), env = prod").String())
	for _, bad := range []string{"env in prod", "=", "a b", strings.Repeat("a", credentials.MaxGrant+1), "UPPER/=x"} {
		_, err := credentials.ParseGrant(bad)
		require.Error(t, err, bad)
		assert.Less(t, len(err.Error()), 1000)
	}
}

func TestGrant_InCertificate(t *testing.T) {
	ca := runnertest.NewCA(t)
	id := credentials.RunnerURI(runnertest.TrustDomain, "ci")
	parse := func(change func(*x509.Certificate)) *x509.Certificate {
		cert, err := x509.ParseCertificate(ca.IssueWith(t, change, id).Certificate[0])
		require.NoError(t, err)
		return cert
	}
	opts := x509.VerifyOptions{Roots: ca.Pool, Intermediates: ca.Intermediates, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}

	limited := parse(granted(t, "env=prod,region in (eu,us)"))
	got, err := credentials.GrantOf(limited)
	require.NoError(t, err)
	assert.Equal(t, "env=prod,region in (eu,us)", got.String())
	_, err = limited.Verify(opts)
	require.ErrorAs(t, err, &x509.UnhandledCriticalExtension{}, "whoever knows nothing of grants refuses it")
	_, err = credentials.Understood(limited).Verify(opts)
	require.NoError(t, err)
	assert.Len(t, limited.UnhandledCriticalExtensions, 1, "the certificate itself is as it was")

	for name, value := range map[string][]byte{
		"empty": {}, "no text": {0x02, 1, 1}, "text and more": {0x0c, 1, 'a', 0}, "no selector": {0x0c, 3, 'a', ' ', 'b'},
		"for all": {0x0c, 0}, "too long": make([]byte, 4096),
	} {
		extensions, err := grant(t, "a").Extensions()
		require.NoError(t, err)
		extensions[0].Value = value
		_, err = credentials.GrantOf(parse(func(c *x509.Certificate) { c.ExtraExtensions = extensions }))
		require.Error(t, err, name)
	}

	other := parse(func(c *x509.Certificate) {
		c.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 2, 3, 4}, Critical: true, Value: []byte{5, 0}}}
	})
	_, err = credentials.Understood(other).Verify(opts)
	require.Error(t, err, "another critical extension")
}

func TestGrant_ShownByOpenSSL(t *testing.T) {
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Skip("openssl is not installed")
	}
	cert := runnertest.NewCA(t).IssueWith(t, granted(t, "env=prod"), credentials.RunnerURI(runnertest.TrustDomain, "ci"))
	file := filepath.Join(t.TempDir(), "cert.der")
	require.NoError(t, os.WriteFile(file, cert.Certificate[0], 0o600))
	out, err := exec.CommandContext(t.Context(), openssl, "x509", "-inform", "DER", "-in", file, "-noout", "-text").CombinedOutput()
	require.NoError(t, err, string(out))
	assert.Contains(t, string(out), "1.2.840.113556.1.8000.2554.53702.19502.7018.19118.34036.4378416.16178480: critical")
	assert.Contains(t, string(out), "env=prod")
}

func FuzzGrantOf(f *testing.F) {
	extensions, err := grant(f, "env=prod,region in (eu,us)").Extensions()
	require.NoError(f, err)
	f.Add(extensions[0].Value)
	f.Add([]byte{0x0c, 0x81, 0x01, 'a'})
	f.Fuzz(func(t *testing.T, value []byte) {
		cert := &x509.Certificate{Extensions: []pkix.Extension{{Id: extensions[0].Id, Value: value}}}
		g, err := credentials.GrantOf(cert)
		if err != nil {
			return
		}
		require.False(t, g.All(), "an extension granted everything")
		if again, err := credentials.ParseGrant(g.String()); err != nil || again.String() != g.String() {
			t.Fatalf("%q is read back as %q, %v", g, again, err)
		}
	})
}
