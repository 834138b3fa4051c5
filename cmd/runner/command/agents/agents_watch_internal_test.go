package agents

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/test/selfsigned"
)

// TestWatch_BrokerReadAgain gives a watching Runner another account at the broker, and another CA.
func TestWatch_BrokerReadAgain(t *testing.T) {
	cert, key, err := selfsigned.PEM("runner")
	require.NoError(t, err)
	c := credentials.Credentials{
		Runner: "ci", Certificate: cert, Key: key, CA: cert, ControlPlane: "https://cp.example.com:8443", Edge: "cp.example.com:7443",
		AgentsDomain: "agents.example.com", TrustDomain: "example.com", Broker: credentials.Broker{URL: "amqps://ci:old@one.example.com:5671/"},
	}
	file := filepath.Join(t.TempDir(), "runner.json")
	write := func() {
		t.Helper()
		text, err := c.Encode()
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(file, text, 0o600))
	}
	write()
	config, err := (&agentsCommand{}).events(&cmdutil.Login{Credentials: c, File: file}, zerolog.Nop())
	require.NoError(t, err)
	assert.Equal(t, []string{"amqps://ci:old@one.example.com:5671/"}, config.URLs)
	assert.Nil(t, config.TLS, "the machine's CAs")

	c.Broker = credentials.Broker{URL: "amqps://ci:new@one.example.com:5671/,amqps://ci:new@two.example.com:5671/", CA: cert}
	write()
	urls, conf, err := config.Reread()
	require.NoError(t, err)
	assert.Equal(t, []string{"amqps://ci:new@one.example.com:5671/", "amqps://ci:new@two.example.com:5671/"}, urls)
	assert.NotNil(t, conf.RootCAs)
	require.NoError(t, os.Remove(file))
	_, _, err = config.Reread()
	require.ErrorContains(t, err, "does not exist")
}
