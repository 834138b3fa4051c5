package webcerts_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	pebbleca "github.com/letsencrypt/pebble/v2/ca"
	pebbledb "github.com/letsencrypt/pebble/v2/db"
	pebbleva "github.com/letsencrypt/pebble/v2/va"
	pebblewfe "github.com/letsencrypt/pebble/v2/wfe"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway/webcerts"
	"github.com/pipeops/pipeops-vm-agent/test/dnstest"
)

// acmeCA is pebble, the ACME CA that Let's Encrypt tests with. It reaches the gateway at those
// ports.
func acmeCA(t *testing.T, dns string, httpPort, httpsPort int) (directory string, roots *x509.CertPool, issuers *x509.CertPool) {
	t.Helper()
	t.Setenv("PEBBLE_VA_NOSLEEP", "1")
	t.Setenv("PEBBLE_WFE_NONCEREJECT", "0")
	quiet := log.New(io.Discard, "", 0)
	db := pebbledb.NewMemoryStore()
	authority := pebbleca.New(quiet, db, "", "ecdsa", 0, 1, map[string]pebbleca.Profile{"default": {Description: "default"}})
	front := pebblewfe.New(quiet, db, pebbleva.New(quiet, httpPort, httpsPort, true, dns, db), authority, nil, true, false, 0, 0)
	srv := httptest.NewTLSServer(front.Handler())
	t.Cleanup(srv.Close)
	roots, issuers = x509.NewCertPool(), x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	issuers.AddCert(authority.GetRootCert(0).Cert)
	return srv.URL + pebblewfe.DirectoryPath, roots, issuers
}

// TestACME obtains certificates from a real ACME CA by both of the challenges, and none for a host
// that is not served.
func TestACME(t *testing.T) {
	for name, plain := range map[string]bool{"HTTP-01": true, "TLS-ALPN-01": false} {
		t.Run(name, func(t *testing.T) {
			dns := dnstest.Start(t)
			dns.Set(t, "www.example.org", "A 127.0.0.1")
			secure, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			cfg := webcerts.Config{
				Storage:   &webcerts.Storage{DB: openStore(t), Key: ca.NewKey(), Holder: "one", Now: time.Now},
				HTTPSPort: secure.Addr().(*net.TCPAddr).Port, Email: "ops@example.org", Log: zerolog.Nop(),
				Allowed: func(host string) bool { return host == "www.example.org" },
			}
			srv := httptest.NewUnstartedServer(http.NotFoundHandler())
			t.Cleanup(srv.Close)
			if plain {
				cfg.HTTPPort = srv.Listener.Addr().(*net.TCPAddr).Port
			}
			var issuers *x509.CertPool
			cfg.Directory, cfg.Roots, issuers = acmeCA(t, dns.Address, cfg.HTTPPort, cfg.HTTPSPort)
			c := webcerts.New(cfg)
			t.Cleanup(c.Close)
			srv.Config.Handler = c.Challenge()(http.NotFoundHandler())
			srv.Start()
			web := httptest.NewUnstartedServer(http.NotFoundHandler())
			require.NoError(t, web.Listener.Close())
			web.Listener, web.TLS = secure, c.TLS()
			web.Config.ErrorLog = log.New(io.Discard, "", 0)
			web.StartTLS()
			t.Cleanup(web.Close)

			require.NoError(t, c.Ensure(t.Context(), "www.example.org"))
			visitor := &tls.Config{RootCAs: issuers, ServerName: "www.example.org", MinVersion: tls.VersionTLS12}
			conn, err := (&tls.Dialer{Config: visitor}).DialContext(t.Context(), "tcp", secure.Addr().String())
			require.NoError(t, err)
			leaf := conn.(*tls.Conn).ConnectionState().PeerCertificates[0]
			require.NoError(t, conn.Close())
			assert.Equal(t, []string{"www.example.org"}, leaf.DNSNames)

			visitor = &tls.Config{RootCAs: issuers, ServerName: "other.example.org", MinVersion: tls.VersionTLS12}
			_, err = (&tls.Dialer{Config: visitor}).DialContext(t.Context(), "tcp", secure.Addr().String())
			require.Error(t, err)
		})
	}
}
