package credentials_test

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
	"github.com/pipeops/pipeops-vm-agent/test/selfsigned"
)

func soundCredentials(t testing.TB) credentials.Credentials {
	t.Helper()
	cert, key, err := selfsigned.PEM()
	require.NoError(t, err)
	return credentials.Credentials{
		Runner: "builder", ControlPlane: "https://cp:8443", Edge: "cp:8444", AgentsDomain: "agents.test", TrustDomain: "test",
		CA: cert, Certificate: cert, Key: key,
		Broker: credentials.Broker{URL: "amqps://runner:hunter2@mq:5671/", CA: cert},
	}
}

func TestCredentials_File(t *testing.T) {
	want := soundCredentials(t)
	path := filepath.Join(t.TempDir(), "runner.json")
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o644))
	require.NoError(t, want.Write(path))
	got, err := credentials.Load(path)
	require.NoError(t, err)
	assert.Equal(t, want, got)

	require.NoError(t, os.Chmod(path, 0o640))
	_, err = credentials.Load(path)
	require.ErrorContains(t, err, "chmod 600")
	_, err = credentials.Load(path + "x")
	require.ErrorContains(t, err, "runner create")
}

func TestCredentials_HideSecrets(t *testing.T) {
	c := soundCredentials(t)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		assert.Equal(t, "credentials of Runner builder", fmt.Sprintf(verb, c))
	}
}

func TestCredentials_NameField(t *testing.T) {
	for want, spoil := range map[string]func(*credentials.Credentials){
		"runner":          func(c *credentials.Credentials) { c.Runner = "" },
		"edge":            func(c *credentials.Credentials) { c.Edge = "" },
		"certificate and": func(c *credentials.Credentials) { c.Key = "hunter2" },
		"ca: ":            func(c *credentials.Credentials) { c.CA = "" },
		"broker.ca":       func(c *credentials.Credentials) { c.Broker.CA = "x" },
	} {
		c := soundCredentials(t)
		spoil(&c)
		text, err := json.Marshal(&c)
		require.NoError(t, err)
		_, err = credentials.Parse(text)
		require.ErrorContains(t, err, want)
		assert.NotContains(t, err.Error(), "hunter2")
	}
	_, err := credentials.Parse([]byte(`{"runnner":"x"}`))
	require.ErrorContains(t, err, "runnner")
	_, err = credentials.Parse([]byte(`{"operator":"alice","controlPlane":"https://cp.example.com"}`))
	require.EqualError(t, err, "it has an operator's credentials, which are for pipeops-controlplane, and not a Runner's")
	_, err = credentials.Parse(make([]byte, 1<<20))
	require.ErrorContains(t, err, "too large")
}

func FuzzParseCredentials(f *testing.F) {
	c := soundCredentials(f)
	text, err := json.Marshal(&c)
	require.NoError(f, err)
	f.Add(text)
	f.Add([]byte(`{} {}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if c, err := credentials.Parse(text); err == nil && (c.Runner == "" || c.Edge == "") {
			t.Fatal("accepted though incomplete")
		}
	})
}

// A caller could connect with what came beside the error.
func TestParseGitURL_ErrorHasNoResult(t *testing.T) {
	for _, url := range []string{
		"https://git.example.com/shop/../payroll.git", "https://git.example.com/", "git@git.example.com:-x", "ssh://-o@git.example.com/x",
	} {
		got, err := runnerapi.ParseGitURL(url)
		require.Error(t, err, url)
		assert.Zero(t, got, url)
	}
	credentials, other := soundCredentials(t), soundCredentials(t)
	credentials.Endorsement = other.Certificate // of another key
	cert, err := credentials.TLSCertificate()
	require.ErrorContains(t, err, "endorsement")
	assert.Empty(t, cert.Certificate)
}

// The certificate names who acts as its Runner. A malformed name is not a name.
func TestActorExtension(t *testing.T) {
	named := func(extensions ...pkix.Extension) string {
		return credentials.ActorOf(&x509.Certificate{Extensions: extensions})
	}
	assert.Empty(t, named())
	for _, name := range []string{"alice", "oidc/zoë@example.com"} {
		extension, err := credentials.ActorExtension(name)
		require.NoError(t, err)
		assert.False(t, extension.Critical, "an agent that does not know it accepts the certificate")
		assert.Equal(t, name, named(extension))
		for what, value := range map[string][]byte{
			"cut": extension.Value[:len(extension.Value)-1], "longer": append(extension.Value[:len(extension.Value):len(extension.Value)], 0),
			"nothing": nil, "no text": {2, 1, 5}, "no UTF-8": {asn1.TagUTF8String, 1, 0xff},
		} {
			assert.Empty(t, named(pkix.Extension{Id: extension.Id, Value: value}), what)
		}
	}
	for _, name := range []string{"", strings.Repeat("x", credentials.MaxActor+1)} {
		_, err := credentials.ActorExtension(name)
		require.Error(t, err)
	}
}

func grant(t testing.TB, text string) credentials.Grant {
	t.Helper()
	g, err := credentials.ParseGrant(text)
	require.NoError(t, err)
	return g
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

	limited := parse(runnertest.Granted(t, "env=prod,region in (eu,us)"))
	got, err := credentials.GrantOf(limited)
	require.NoError(t, err)
	assert.Equal(t, "env=prod,region in (eu,us)", got.String())
	_, err = limited.Verify(opts)
	require.ErrorAs(t, err, &x509.UnhandledCriticalExtension{}, "a verifier without support for grants refuses it")
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
	cert := runnertest.NewCA(t).IssueWith(t, runnertest.Granted(t, "env=prod"), credentials.RunnerURI(runnertest.TrustDomain, "ci"))
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
