package credentials_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
)

func soundCredentials(t testing.TB) credentials.Credentials {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	cert := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return credentials.Credentials{
		Runner: "builder", ControlPlane: "https://cp:8443", Edge: "cp:8444", AgentsDomain: "agents.test", TrustDomain: "test",
		CA: cert, Certificate: cert, Key: string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})),
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
