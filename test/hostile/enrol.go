package hostile

import (
	"crypto/tls"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/agent/identity"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
)

// Enrol registers an agent at a control plane, without the agent's program.
func Enrol(t testing.TB, url, token, name string) *identity.Identity {
	t.Helper()
	parsed, err := controlapi.ParseToken(token)
	require.NoError(t, err)
	trust, err := controlapi.Trust{Fingerprint: parsed.Fingerprint}.TLSConfig(url)
	require.NoError(t, err)
	key, err := identity.NewKey()
	require.NoError(t, err)
	csr, err := identity.CSR(key)
	require.NoError(t, err)
	client := Control(t, url, name, trust)
	defer client.Close()
	answer, err := client.Register(t.Context(), parsed, controlapi.RegisterRequest{
		Name: name, ClusterUID: name, CSR: csr, AgentVersion: "1", RunnerAPIVersion: "v1", Clock: time.Now(),
	})
	require.NoError(t, err)
	id, err := identity.New(key, answer, identity.Registration{})
	require.NoError(t, err)
	return id
}

// Control returns an agent's client of the control plane.
func Control(t testing.TB, url, name string, config *tls.Config) *controlapi.Client {
	t.Helper()
	client, err := controlapi.NewClient(controlapi.ClientConfig{
		URL: url, TLS: func() *tls.Config { return config }, Log: zerolog.Nop(), Origin: func() controlapi.Origin { return controlapi.Origin{ClusterUID: name} },
	})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}
