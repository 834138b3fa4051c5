package openid

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/authn"
)

func settings() Config {
	return Config{
		Issuer: "https://id.example.com/dex", ClientID: "console", ClientSecret: "secret", NameClaim: DefaultNameClaim, GroupsClaim: DefaultGroupsClaim,
		Roles: map[string]string{"platform": authn.RoleAdmin, "support": authn.RoleViewer},
	}
}

func mistakes(c Config) (said []string) {
	c.Validate(func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) })
	return said
}

func TestOpenID_ErrorsNameFlag(t *testing.T) {
	require.Empty(t, mistakes(settings()))
	require.Empty(t, mistakes(Config{}), "it is off")
	for flag, change := range map[string]func(*Config){
		"--openid-issuer: is missing":              func(c *Config) { c.Issuer = "" },
		`--openid-issuer: "http://id.example.com"`: func(c *Config) { c.Issuer = "http://id.example.com" },
		`--openid-issuer: "https://"`:              func(c *Config) { c.Issuer = "https://" },
		`--openid-issuer: "https://x/?a=b"`:        func(c *Config) { c.Issuer = "https://x/?a=b" },
		"--openid-client-id: is missing":           func(c *Config) { c.ClientID = "" },
		"--openid-client-secret-file: is missing":  func(c *Config) { c.ClientSecret = "" },
		"--openid-name-claim: is empty":            func(c *Config) { c.NameClaim = "" },
		"--openid-groups-claim: is empty":          func(c *Config) { c.GroupsClaim = "" },
		"--openid-role: is missing":                func(c *Config) { c.Roles = nil },
		`--openid-role: "a=owner"`:                 func(c *Config) { c.Roles = map[string]string{"a": "owner"} },
		`--openid-role: "=admin"`:                  func(c *Config) { c.Roles = map[string]string{"": "admin"} },
	} {
		c := settings()
		change(&c)
		said := mistakes(c)
		require.Len(t, said, 1, flag)
		assert.Contains(t, said[0], flag)
		assert.NotContains(t, said[0], "secret=")
	}
}

func TestOpenID_SettingsEndSessions(t *testing.T) {
	before := settings()
	for what, change := range map[string]func(*Config){
		"issuer": func(c *Config) { c.Issuer = "https://other.example.com" },
		"client": func(c *Config) { c.ClientID = "other" },
		"name":   func(c *Config) { c.NameClaim = "sub" },
		"groups": func(c *Config) { c.GroupsClaim = "roles" },
		"role": func(c *Config) {
			c.Roles = map[string]string{"platform": authn.RoleViewer, "support": authn.RoleViewer}
		},
	} {
		c := settings()
		change(&c)
		assert.NotEqual(t, before.Digest(), c.Digest(), what)
	}
	rotated := settings()
	rotated.ClientSecret = "new"
	assert.Equal(t, before.Digest(), rotated.Digest(), "a new secret of the client ends nothing")
}
