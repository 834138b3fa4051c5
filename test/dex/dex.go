// Package dex runs dex, an OpenID provider, for tests.
package dex

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/programs"
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
	ln, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it only finds a free port
	require.NoError(t, err)
	d := &Dex{t: t, address: ln.Addr().String(), Issuer: "https://" + ln.Addr().String() + "/dex"}
	require.NoError(t, ln.Close())
	d.certify()
	return d
}

// certify makes a certificate of the provider's own.
func (d *Dex) certify() {
	d.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(d.t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, BasicConstraintsValid: true, IsCA: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(d.t, err)
	d.Certificate, err = x509.ParseCertificate(der)
	require.NoError(d.t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(d.t, err)
	dir := d.t.TempDir()
	d.certFile, d.keyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	require.NoError(d.t, os.WriteFile(d.certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(d.t, os.WriteFile(d.keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o600))
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
