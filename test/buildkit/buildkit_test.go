package buildkit_test

import (
	"archive/tar"
	"errors"
	"io"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/buildkit"
)

// TestBuildKit_ImageAsUpstream looks for what a build's pod starts, and for the capability
// without which no user namespace can be mapped.
func TestBuildKit_ImageAsUpstream(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles BuildKit")
	}
	img, err := buildkit.Image(t.Context())
	require.NoError(t, err)
	files := mutate.Extract(img)
	defer func() { require.NoError(t, files.Close()) }()
	found := map[string]*tar.Header{}
	for r := tar.NewReader(files); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		found[h.Name] = h
	}
	for _, name := range []string{"usr/bin/buildctl-daemonless.sh", "usr/bin/buildctl", "usr/bin/buildkitd", "usr/bin/rootlesskit", "usr/bin/runc", "bin/sh", "etc/subuid"} {
		assert.Contains(t, found, name)
	}
	require.Contains(t, found, "usr/bin/newuidmap")
	assert.Len(t, found["usr/bin/newuidmap"].PAXRecords["SCHILY.xattr.security.capability"], 20)
	assert.Equal(t, int64(0o755), found["usr/bin/newuidmap"].Mode, "and not setuid")
}
