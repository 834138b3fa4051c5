// Package dex runs dex, an OpenID provider, for tests.
package dex

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/freeport"
	"github.com/pipeops/pipeops-vm-agent/test/programs"
	"github.com/pipeops/pipeops-vm-agent/test/selfsigned"
)

// The person who signs in at once, as upstream's connector for tests has it.
const (
	Email = "kilgore@kilgore.trout"
	Group = "authors"
)

// Dex is an OpenID provider with one client and one person.
type Dex struct {
	// Issuer is its URL.
	Issuer      string
	Certificate *x509.Certificate

	t                 *testing.T
	address           string
	certFile, keyFile string
}

// New chooses the provider's address and certificate. Start starts it.
func New(t *testing.T) *Dex {
	t.Helper()
	d := &Dex{t: t, address: freeport.Address(t)}
	d.Issuer = "https://" + d.address + "/dex"
	d.certify()
	return d
}

// certify makes a certificate of the provider's own.
func (d *Dex) certify() {
	d.t.Helper()
	cert, key, err := selfsigned.PEM("127.0.0.1")
	require.NoError(d.t, err)
	block, _ := pem.Decode([]byte(cert))
	d.Certificate, err = x509.ParseCertificate(block.Bytes)
	require.NoError(d.t, err)
	dir := d.t.TempDir()
	d.certFile, d.keyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	require.NoError(d.t, os.WriteFile(d.certFile, []byte(cert), 0o600))
	require.NoError(d.t, os.WriteFile(d.keyFile, []byte(key), 0o600))
}

// Start serves until the test ends, for a client to which browsers return at an address.
func (d *Dex) Start(client, secret, back string) {
	d.t.Helper()
	program, err := programs.Dex.Build(d.t.Context())
	require.NoError(d.t, err)
	secretFile := filepath.Join(d.t.TempDir(), "secret")
	require.NoError(d.t, os.WriteFile(secretFile, []byte(secret), 0o600))
	ctx, stop := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, "-listen", d.address, "-issuer", d.Issuer, "-cert", d.certFile, "-key", d.keyFile,
		"-client", client, "-secret-file", secretFile, "-redirect", back)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	require.NoError(d.t, cmd.Start())
	d.t.Cleanup(func() {
		stop()
		_ = cmd.Wait() // it was killed
		if d.t.Failed() {
			d.t.Logf("dex:\n%s", &said)
		}
	})
	await.Until(d.t, "dex serves", d.serves)
}

func (d *Dex) serves() bool {
	roots := x509.NewCertPool()
	roots.AddCert(d.Certificate)
	transport := &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(d.t.Context(), http.MethodGet, d.Issuer+"/.well-known/openid-configuration", nil)
	require.NoError(d.t, err)
	resp, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}
