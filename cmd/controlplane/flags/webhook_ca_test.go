package flags

import (
	"crypto/x509"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWebhookCA(t *testing.T) {
	machine, err := (&WebhookCA{}).TLS()
	require.NoError(t, err)
	assert.Nil(t, machine, "nil is the machine's")

	receiver := httptest.NewTLSServer(nil)
	t.Cleanup(receiver.Close)
	file := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: receiver.Certificate().Raw}), 0o600))
	source, err := (&WebhookCA{file: file}).TLS()
	require.NoError(t, err)
	conf, err := source()
	require.NoError(t, err)
	_, err = receiver.Certificate().Verify(x509.VerifyOptions{Roots: conf.RootCAs, DNSName: "example.com"})
	require.NoError(t, err)

	require.NoError(t, os.WriteFile(file, []byte("no certificate"), 0o600))
	_, err = (&WebhookCA{file: file}).TLS()
	require.ErrorContains(t, err, "--webhook-ca")
	_, err = (&WebhookCA{file: file + ".missing"}).TLS()
	require.ErrorContains(t, err, "--webhook-ca")
}
