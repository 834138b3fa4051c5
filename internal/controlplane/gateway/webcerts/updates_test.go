package webcerts_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway/webcerts"
)

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
