package doctor_test

import (
	"archive/tar"
	"compress/gzip"
	"encoding/pem"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/pipeops/pipeops-vm-agent/agent/doctor"
	"github.com/pipeops/pipeops-vm-agent/test/freeport"
	"github.com/pipeops/pipeops-vm-agent/test/planetest"
)

func writePEM(t *testing.T, der []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	return file
}

// unpack reads a bundle: names and texts.
func unpack(t *testing.T, file string) map[string]string {
	t.Helper()
	f, err := os.Open(file)
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	unzipped, err := gzip.NewReader(f)
	require.NoError(t, err)
	parts := map[string]string{}
	for archive := tar.NewReader(unzipped); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return parts
		}
		require.NoError(t, err)
		text, err := io.ReadAll(archive)
		require.NoError(t, err)
		parts[header.Name] = string(text)
	}
}

// TestWriteBundle_HidesSecrets plants canaries wherever a secret can be.
func TestWriteBundle_HidesSecrets(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://somebody:canary-proxy@127.0.0.1:1")
	opts := options(t, planetest.Start(t))
	opts.Config.Token += "canary"
	opts.Config.K3sToken = "K10canary-k3s::server:canary"
	opts.Kubernetes = &rest.Config{Host: "https://" + freeport.Address(t), BearerToken: "canary-bearer", Password: "canary-password"}
	opts.ConfigErr = errors.New("somebody logged canary-bearer and " + opts.Config.Token + " and password=canary-unknown")
	report := doctor.Examine(t.Context(), opts)
	file := filepath.Join(t.TempDir(), "support.tar.gz")
	require.NoError(t, doctor.WriteBundle(t.Context(), file, opts, report))

	info, err := os.Stat(file)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	parts := unpack(t, file)
	for name, text := range parts {
		assert.NotContains(t, text, "canary", name)
	}
	assert.Contains(t, parts["pipeops-agent-support/doctor.json"], `"check": "configuration"`)
	assert.Contains(t, parts["pipeops-agent-support/doctor.json"], "somebody logged ********")
	assert.Contains(t, parts["pipeops-agent-support/configuration.txt"], "shop")
	assert.Contains(t, parts["pipeops-agent-support/environment.txt"], "HTTPS_PROXY=http://somebody:********@127.0.0.1:1")
	assert.Contains(t, parts["pipeops-agent-support/version.json"], `"agent": "test"`)
	assert.Contains(t, parts["pipeops-agent-support/missing.txt"], "kubernetes/pods.json: ")
	left, err := os.ReadDir(filepath.Dir(file))
	require.NoError(t, err)
	assert.Len(t, left, 1, "no temporary file is left")
}
