package tlsfiles_test

import (
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/tlsfiles"
	"github.com/pipeops/pipeops-vm-agent/test/selfsigned"
)

func pair(t *testing.T) (cert, key string) {
	t.Helper()
	cert, key, err := selfsigned.PEM("127.0.0.1")
	require.NoError(t, err)
	return cert, key
}

// TestTransport_NewCA replaces the file of CAs between two requests.
func TestTransport_NewCA(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	right := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	other, _ := pair(t)
	file := filepath.Join(t.TempDir(), "ca.pem")
	write := func(text string) {
		t.Helper()
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	files := &tlsfiles.Files{CA: file, CAName: "--webhook-ca", Machines: true}
	client := &http.Client{Transport: tlsfiles.NewTransport(&http.Transport{}, files.Config)}
	get := func() error {
		resp, err := client.Get(server.URL)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	}
	require.ErrorContains(t, get(), "--webhook-ca: ", "no file")
	write(other)
	require.ErrorContains(t, get(), "certificate signed by unknown authority")
	write(right)
	require.NoError(t, get(), "without a restart")
	before, err := files.Config()
	require.NoError(t, err)
	again, err := files.Config()
	require.NoError(t, err)
	assert.Same(t, before, again, "nothing changed")
	write("half")
	_, err = files.Config()
	require.EqualError(t, err, "--webhook-ca: "+file+" holds no certificate in PEM")
	require.NoError(t, get(), "the last one stays")
	write(other)
	require.ErrorContains(t, get(), "certificate signed by unknown authority", "the CA was taken away")
}

func TestFiles_ClientCertificate(t *testing.T) {
	cert, key := pair(t)
	dir := t.TempDir()
	files := &tlsfiles.Files{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"), CertName: "CERT", KeyName: "KEY"}
	require.NoError(t, os.WriteFile(files.Cert, []byte(cert), 0o600))
	_, err := files.Config()
	require.ErrorContains(t, err, "KEY: ")
	require.NoError(t, os.WriteFile(files.Key, []byte(key), 0o600))
	conf, err := files.Config()
	require.NoError(t, err)
	require.Len(t, conf.Certificates, 1)
	assert.Nil(t, conf.RootCAs, "the machine's")
	cert, key = pair(t)
	require.NoError(t, os.WriteFile(files.Cert, []byte(cert), 0o600))
	_, err = files.Config()
	require.ErrorContains(t, err, "CERT and KEY: ", "one of them is replaced")
	require.NoError(t, os.WriteFile(files.Key, []byte(key), 0o600))
	next, err := files.Config()
	require.NoError(t, err)
	assert.NotEqual(t, conf.Certificates[0].Certificate, next.Certificates[0].Certificate)
}
