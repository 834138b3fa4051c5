package dnstest_test

import (
	"crypto/tls"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway/webcerts"
	"github.com/pipeops/pipeops-vm-agent/test/acmetest"
	"github.com/pipeops/pipeops-vm-agent/test/dnstest"
	"github.com/pipeops/pipeops-vm-agent/test/postgres"
	"github.com/pipeops/pipeops-vm-agent/test/proxytest"
	"github.com/pipeops/pipeops-vm-agent/test/selfsigned"
	"github.com/pipeops/pipeops-vm-agent/test/storetest"
)

const (
	domain = "apps.example.org"
	// token is a key for the fake of clouds. As an access key of AWS it stands beside a secret.
	token = "token-of-the-zone"
)

// startClouds has this process reach a fake of the clouds at their names. It goes by the process'
// proxy and CAs, which net/http and crypto/x509 read once: this package has no other test.
func startClouds(t *testing.T, server *dnstest.Server) {
	t.Helper()
	names := []string{"api.cloudflare.com", "api.digitalocean.com", "api.hetzner.cloud", "route53.amazonaws.com"}
	cert, key, err := selfsigned.PEM(names...)
	require.NoError(t, err)
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	require.NoError(t, err)
	srv := httptest.NewUnstartedServer(dnstest.Clouds{Server: server, Zone: domain, Token: token}.Handler())
	srv.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	proxy := proxytest.Start(t, proxytest.Config{Host: "127.0.0.1", Site: srv.Listener.Addr().String()})
	t.Setenv("HTTPS_PROXY", "http://"+proxy.Address())
	roots := write(t, cert)
	t.Setenv("SSL_CERT_FILE", roots)
	t.Setenv("AWS_CA_BUNDLE", roots)
}

func write(t *testing.T, text string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// TestClouds obtains a wildcard's certificate from a real ACME CA. The real libraries of the
// providers change the records.
func TestClouds(t *testing.T) {
	dns := dnstest.Start(t)
	dns.Set(t, domain, "SOA ns.example.org. ops.example.org. 1 60 60 60 60")
	startClouds(t, dns)
	authority := acmetest.Start(t, acmetest.Options{DNS: dns.Address, HTTPPort: 1, HTTPSPort: 1})
	obtain := func(t *testing.T, provider, key string) error {
		t.Helper()
		c := webcerts.New(webcerts.Config{
			Storage:   &webcerts.Storage{DB: storetest.Open(t, nil, postgres.SQLite), Key: ca.NewKey(), Holder: "one", Now: time.Now},
			Directory: authority.Directory, Roots: authority.Roots, Log: zerolog.Nop(), Served: func(name string) string { return name },
			Wildcard: webcerts.Updates{Domain: domain, Provider: provider, KeyFile: write(t, key), Resolvers: []string{dns.Address}},
		})
		t.Cleanup(c.Close)
		return c.ObtainWildcard(t.Context())
	}
	for provider, key := range map[string]string{
		webcerts.Cloudflare: "TOKEN\n", webcerts.DigitalOcean: "TOKEN", webcerts.Hetzner: "TOKEN\n",
		webcerts.Route53: "[default]\naws_access_key_id = TOKEN\naws_secret_access_key = secret\n",
	} {
		t.Run(provider, func(t *testing.T) {
			before := dns.Updates()
			require.NoError(t, obtain(t, provider, strings.ReplaceAll(key, "TOKEN", token)))
			assert.Greater(t, dns.Updates(), before)
			assert.False(t, dns.Has("_acme-challenge."+domain), "the challenge is removed")

			err := obtain(t, provider, strings.ReplaceAll(key, "TOKEN", "another-token"))
			require.Error(t, err)
			assert.NotContains(t, err.Error(), "another-token")
		})
	}
}
