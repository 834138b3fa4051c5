package flags

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/openid"
)

// parsed returns what flags say.
func parsed(t *testing.T, args ...string) (openid.Config, error) {
	t.Helper()
	o, f := &OpenID{}, pflag.NewFlagSet("serve", pflag.ContinueOnError)
	o.Add(f)
	require.NoError(t, f.Parse(args))
	return o.Config()
}

func TestOpenID_Flags(t *testing.T) {
	t.Setenv(EnvOpenIDSecret, "of-the-environment")
	cfg, err := parsed(t)
	require.NoError(t, err)
	assert.False(t, cfg.Given())
	assert.Equal(t, []string{"email", "profile", "groups"}, cfg.Scopes)
	assert.Equal(t, "email", cfg.NameClaim)
	assert.Equal(t, "groups", cfg.GroupsClaim)
	assert.Nil(t, cfg.TLS, "nil is the machine's")
	assert.Equal(t, "of-the-environment", cfg.ClientSecret)

	file := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(file, []byte("of-the-file\n"), 0o600))
	cfg, err = parsed(t, "--openid-client-secret-file", file, "--openid-role", "platform=admin", "--openid-role", `"cn=ops,ou=groups=operator",support=viewer`)
	require.NoError(t, err)
	assert.Equal(t, "of-the-file", cfg.ClientSecret)
	require.NoError(t, os.WriteFile(file, []byte("a new one\n"), 0o600))
	now, err := cfg.Reread()
	require.NoError(t, err)
	assert.Equal(t, "a new one", now)
	assert.Equal(t, map[string]string{"platform": "admin", "cn=ops,ou=groups": "operator", "support": "viewer"}, cfg.Roles)
}

func TestOpenID_FlagErrors(t *testing.T) {
	for says, args := range map[string][]string{
		`--openid-role: "platform" is not GROUP=ROLE`:                  {"--openid-role", "platform"},
		`--openid-role: the group "a" has two roles, viewer and admin`: {"--openid-role", "a=viewer,a=admin"},
		"--openid-client-secret-file: open /nowhere/secret":            {"--openid-client-secret-file", "/nowhere/secret"},
		"--openid-ca: open /nowhere/ca.crt: no such file or directory": {"--openid-ca", "/nowhere/ca.crt"},
	} {
		_, err := parsed(t, args...)
		require.ErrorContains(t, err, says)
	}
}
