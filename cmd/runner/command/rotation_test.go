//go:build unix

package command

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operators"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// TestCARotation_UpdatesCredentials has a command come after a rotation of a real
// control plane's CA that it slept through.
func TestCARotation_UpdatesCredentials(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cp, err := controlplane.New(t.Context(), controlplane.Config{
		DataDir: dir, APIListen: "127.0.0.1:0", TunnelListen: "127.0.0.1:0", EdgeListen: "127.0.0.1:0", Log: zerolog.Nop(),
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- cp.Run(ctx) }()
	defer func() {
		cancel()
		assert.NoError(t, await.Receive(t, done, "the end of the control plane"))
	}()
	admin, err := operators.Open(t.Context(), datadir.Data{Dir: dir}, nil)
	require.NoError(t, err)
	defer func() { assert.NoError(t, admin.Close()) }()
	creds, err := admin.Runners.Create(t.Context(), "ci", time.Hour, false)
	require.NoError(t, err)
	w := &world{credentials: filepath.Join(t.TempDir(), "ci.json"), creds: creds}
	require.NoError(t, creds.Write(w.credentials))
	for _, step := range []ca.Step{ca.Start, ca.Sign, ca.Finish} {
		_, _, err := admin.CA.Rotate(t.Context(), step, operators.RotateOptions{Force: true})
		require.NoError(t, err)
	}
	authority, err := ca.Open(filepath.Join(dir, "ca.pem"), ca.Domains{}, ca.LogFunc(func(ca.Record) error { return nil }), time.Now)
	require.NoError(t, err)

	await.Until(t, "the control plane has taken up the rotation", func() bool {
		code, _, stderr := w.run(t, "agents")
		assert.Zero(t, code, stderr)
		kept, err := credentials.Load(w.credentials)
		assert.NoError(t, err)
		cert, err := kept.TLSCertificate()
		return assert.NoError(t, err) && ca.IssuerID(cert.Leaf) == authority.SignerID(ca.RoleRunner)
	})
	info, err := os.Stat(w.credentials)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	code, _, stderr := w.run(t, "agents")
	assert.Zero(t, code, stderr)
	assert.NotContains(t, stderr, "certificate")
}
