package webcerts_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway/webcerts"
	"github.com/pipeops/pipeops-vm-agent/test/acmetest"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/dnstest"
)

const (
	tsigSecret = "c2VjcmV0IG9mIHRoZSB0ZXN0"
	tsigKey    = "key \"gateway\" {\n\talgorithm hmac-sha256;\n\tsecret \"" + tsigSecret + "\";\n};\n"
)

func keyFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// TestWildcard_DNS01 uses a real ACME CA and signed updates of a real DNS server. A second gateway
// takes the certificate from the database.
func TestWildcard_DNS01(t *testing.T) {
	dns := dnstest.StartForUpdates(t, "gateway", tsigSecret)
	dns.Set(t, "apps.example.org", "SOA ns.example.org. ops.example.org. 1 60 60 60 60")
	db, key := openStore(t), ca.NewKey()
	authority := acmetest.Start(t, acmetest.Options{DNS: dns.Address, HTTPPort: 1, HTTPSPort: 1})
	start := func(holder string) *webcerts.Certificates {
		c := webcerts.New(webcerts.Config{
			Storage:   &webcerts.Storage{DB: db, Key: key, Holder: holder, Now: time.Now},
			Directory: authority.Directory, Roots: authority.Roots, Email: "ops@example.org", Log: zerolog.Nop(),
			Wildcard: webcerts.Updates{Domain: "apps.example.org", Provider: webcerts.RFC2136, Server: dns.Address, KeyFile: keyFile(t, tsigKey)},
			Served:   func(name string) string { return name },
		})
		t.Cleanup(c.Close)
		return c
	}
	one := start("one")
	assert.True(t, one.Covered("web.apps.example.org"))
	assert.False(t, one.Covered("a.web.apps.example.org"))
	assert.False(t, one.Covered("apps.example.org"))
	assert.False(t, one.Has(t.Context(), "web.apps.example.org"))
	_, err := handshake(t, one.TLS(), authority.Issuers, "web.apps.example.org")
	require.Error(t, err, "no certificate of its own is obtained")

	require.NoError(t, one.RunWildcard(t.Context()))
	first, err := handshake(t, one.TLS(), authority.Issuers, "web.apps.example.org")
	require.NoError(t, err)
	assert.Equal(t, []string{"*.apps.example.org"}, first.DNSNames)
	assert.True(t, one.Has(t.Context(), "web.apps.example.org"))
	assert.Empty(t, one.WildcardFailed("web.apps.example.org"))
	updates := dns.Updates()
	assert.Positive(t, updates)
	assert.False(t, dns.Has("_acme-challenge.apps.example.org"), "the challenge is removed")

	two := start("two")
	require.NoError(t, two.RunWildcard(t.Context()))
	second, err := handshake(t, two.TLS(), authority.Issuers, "api.apps.example.org")
	require.NoError(t, err)
	assert.Equal(t, first.SerialNumber, second.SerialNumber)
	assert.Equal(t, updates, dns.Updates())
}

func TestWildcard_ReportsFailure(t *testing.T) {
	dns := dnstest.StartForUpdates(t, "gateway", "b3RoZXIgc2VjcmV0")
	dns.Set(t, "apps.example.org", "SOA ns.example.org. ops.example.org. 1 60 60 60 60")
	authority := acmetest.Start(t, acmetest.Options{DNS: dns.Address, HTTPPort: 1, HTTPSPort: 1})
	c := webcerts.New(webcerts.Config{
		Storage:   &webcerts.Storage{DB: openStore(t), Key: ca.NewKey(), Holder: "one", Now: time.Now},
		Directory: authority.Directory, Roots: authority.Roots, Log: zerolog.Nop(), Served: func(name string) string { return name },
		Wildcard: webcerts.Updates{Domain: "apps.example.org", Provider: webcerts.RFC2136, Server: dns.Address, KeyFile: keyFile(t, tsigKey)},
	})
	t.Cleanup(c.Close)
	await.Background(t, "the wildcard's upkeep", c.RunWildcard)
	await.Until(t, "an attempt has failed", func() bool { return c.WildcardFailed("web.apps.example.org") != "" })
	assert.NotContains(t, c.WildcardFailed("web.apps.example.org"), tsigSecret)
	assert.Empty(t, c.WildcardFailed("www.example.org"))
}

func TestWildcard_KeyFile(t *testing.T) {
	require.NoError(t, webcerts.Updates{Provider: webcerts.RFC2136, KeyFile: keyFile(t, tsigKey)}.Check())
	require.ErrorContains(t, webcerts.Updates{Provider: webcerts.RFC2136, KeyFile: filepath.Join(t.TempDir(), "none")}.Check(), "the key of DNS updates")
	for _, text := range []string{"", tsigSecret, "key x { algorithm hmac-md5; secret \"" + tsigSecret + "\"; };", "key x { secret \"" + tsigSecret + "\"; };"} {
		err := webcerts.Updates{Provider: webcerts.RFC2136, KeyFile: keyFile(t, text)}.Check()
		require.ErrorContains(t, err, "tsig-keygen")
		assert.NotContains(t, err.Error(), tsigSecret)
	}
}
