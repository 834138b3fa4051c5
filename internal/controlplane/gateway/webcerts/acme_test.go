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
	for name, has := range map[string]struct{ plain, bound bool }{"HTTP-01": {plain: true}, "TLS-ALPN-01": {}, "an account of the CA's": {bound: true}} {
		t.Run(name, func(t *testing.T) {
			plain, bound := has.plain, has.bound
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
			at := acmetest.Options{DNS: dns.Address, HTTPPort: cfg.HTTPPort, HTTPSPort: cfg.HTTPSPort}
			if bound {
				at.EABKeyID, at.EABKey = "account-1", eabKey
				cfg.EAB, err = webcerts.ReadEAB("account-1", keyFile(t, eabKey+"=\n"))
				require.NoError(t, err)
			}
			authority := acmetest.Start(t, at)
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

// eabKey is an HMAC key in base64url.
const eabKey = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W"

func TestEAB_Refused(t *testing.T) {
	authority := acmetest.Start(t, acmetest.Options{DNS: dnstest.Start(t).Address, HTTPPort: 1, HTTPSPort: 1, EABKeyID: "account-1", EABKey: eabKey})
	c := webcerts.New(webcerts.Config{
		Storage:   &webcerts.Storage{DB: openStore(t), Key: ca.NewKey(), Holder: "one", Now: time.Now},
		Directory: authority.Directory, Roots: authority.Roots, Log: zerolog.Nop(), Served: served,
	})
	t.Cleanup(c.Close)
	require.ErrorContains(t, c.Ensure(t.Context(), "www.example.org"), "externalAccountRequired")
	for _, text := range []string{"", "two words", "not*base64"} {
		_, err := webcerts.ReadEAB("account-1", keyFile(t, text))
		require.ErrorContains(t, err, "base64url")
	}
}
