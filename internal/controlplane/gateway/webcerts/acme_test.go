package webcerts_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway/webcerts"
	"github.com/pipeops/pipeops-vm-agent/test/acmetest"
	"github.com/pipeops/pipeops-vm-agent/test/dnstest"
)

// TestACME obtains certificates from a real ACME CA by both challenges, and none for hosts that are
// not served.
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
				Served: served,
				Orders: func(context.Context, string) bool { return false },
			}
			srv := httptest.NewUnstartedServer(http.NotFoundHandler())
			t.Cleanup(srv.Close)
			if plain {
				cfg.HTTPPort = srv.Listener.Addr().(*net.TCPAddr).Port
			}
			authority := acmetest.Start(t, acmetest.Options{DNS: dns.Address, HTTPPort: cfg.HTTPPort, HTTPSPort: cfg.HTTPSPort})
			cfg.Directory, cfg.Roots = authority.Directory, authority.Roots
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

			visit := func(host string) (*x509.Certificate, error) {
				visitor := &tls.Config{RootCAs: authority.Issuers, ServerName: host, MinVersion: tls.VersionTLS12}
				conn, err := (&tls.Dialer{Config: visitor}).DialContext(t.Context(), "tcp", secure.Addr().String())
				if err != nil {
					return nil, err
				}
				return conn.(*tls.Conn).ConnectionState().PeerCertificates[0], conn.Close()
			}
			_, err = visit("www.example.org")
			require.Error(t, err)
			assert.False(t, c.Has(t.Context(), "www.example.org"))

			require.NoError(t, c.Ensure(t.Context(), "www.example.org"))
			leaf, err := visit("www.example.org")
			require.NoError(t, err)
			assert.Equal(t, []string{"www.example.org"}, leaf.DNSNames)
			_, err = visit("other.example.org")
			require.Error(t, err)
		})
	}
}
