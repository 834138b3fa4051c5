package webcerts_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
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

// apiToken is a key for the fake of clouds. As an access key of AWS it stands beside a secret.
const apiToken = "token-of-the-zone"

// through leads all requests to a server, in place of the clouds.
type through struct{ url *url.URL }

// RoundTrip implements http.RoundTripper.
func (t through) RoundTrip(r *http.Request) (*http.Response, error) {
	out := r.Clone(r.Context())
	out.URL.Scheme, out.URL.Host = t.url.Scheme, t.url.Host
	return new(http.Transport).RoundTrip(out)
}

// startClouds has the libraries of DNS providers find a fake of the clouds.
func startClouds(t *testing.T, server *dnstest.Server) {
	t.Helper()
	srv := httptest.NewServer(dnstest.Clouds{Server: server, Zone: "apps.example.org", Token: apiToken}.Handler())
	t.Cleanup(srv.Close)
	at, err := url.Parse(srv.URL)
	require.NoError(t, err)
	before := http.DefaultTransport
	http.DefaultTransport = through{at}
	t.Cleanup(func() { http.DefaultTransport = before })
	t.Setenv("AWS_ENDPOINT_URL_ROUTE_53", srv.URL)
}

// TestUpdates_Clouds obtains the wildcard's certificate from a real ACME CA, by records that the
// real libraries of DNS providers change at a fake of the clouds.
func TestUpdates_Clouds(t *testing.T) {
	for provider, key := range map[string]string{
		webcerts.Cloudflare: apiToken + "\n", webcerts.DigitalOcean: apiToken, webcerts.Hetzner: apiToken + "\n",
		webcerts.Route53: "[default]\naws_access_key_id = " + apiToken + "\naws_secret_access_key = secret\n",
	} {
		t.Run(provider, func(t *testing.T) {
			dns := dnstest.Start(t)
			dns.Set(t, "apps.example.org", "SOA ns.example.org. ops.example.org. 1 60 60 60 60")
			authority := acmetest.Start(t, acmetest.Options{DNS: dns.Address, HTTPPort: 1, HTTPSPort: 1})
			startClouds(t, dns)
			c := webcerts.New(webcerts.Config{
				Storage:   &webcerts.Storage{DB: openStore(t), Key: ca.NewKey(), Holder: "one", Now: time.Now},
				Directory: authority.Directory, Roots: authority.Roots, Log: zerolog.Nop(), Served: func(name string) string { return name },
				Wildcard: webcerts.Updates{Domain: "apps.example.org", Provider: provider, KeyFile: keyFile(t, key), Resolvers: []string{dns.Address}},
			})
			t.Cleanup(c.Close)
			require.NoError(t, c.RunWildcard(t.Context()))
			leaf, err := handshake(t, c.TLS(), authority.Issuers, "web.apps.example.org")
			require.NoError(t, err)
			assert.Equal(t, []string{"*.apps.example.org"}, leaf.DNSNames)
			assert.Positive(t, dns.Updates())
			assert.False(t, dns.Has("_acme-challenge.apps.example.org"), "the challenge is removed")
		})
	}
}

func TestUpdates_KeyFile(t *testing.T) {
	const secret = "not to be told"
	missing := filepath.Join(t.TempDir(), "none")
	for provider, fix := range map[string]string{
		webcerts.RFC2136: "tsig-keygen", webcerts.Cloudflare: "API token", webcerts.DigitalOcean: "API token", webcerts.Hetzner: "API token",
		webcerts.Route53: "aws_access_key_id",
	} {
		require.ErrorContains(t, webcerts.Updates{Provider: provider, KeyFile: missing}.Check(), "the key of DNS updates", provider)
		for _, text := range []string{"", secret, "[default]\naws_access_key_id = " + secret} {
			err := webcerts.Updates{Provider: provider, KeyFile: keyFile(t, text)}.Check()
			require.ErrorContains(t, err, fix, provider)
			assert.NotContains(t, err.Error(), secret)
		}
	}
	require.NoError(t, webcerts.Updates{Provider: webcerts.Route53}.Check(), "AWS gives the machine credentials")
}
