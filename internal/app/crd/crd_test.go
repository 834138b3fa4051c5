package crd_test

import (
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/app/crd"
)

const file = "../../../deployments/crds/pipeops.io_apps.yaml"

var update = flag.Bool("update", false, "regenerate the file")

func TestCRD_UpToDate(t *testing.T) {
	isUpToDate(t, file, crd.YAML, "; if the schema changed, raise app.SchemaVersion too")
}

func TestSourceCRD_UpToDate(t *testing.T) {
	isUpToDate(t, "../../../deployments/crds/pipeops.io_sources.yaml", crd.SourceYAML, "")
}

func isUpToDate(t *testing.T, file string, made func() ([]byte, error), also string) {
	t.Helper()
	want, err := made()
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.WriteFile(file, want, 0o600))
	}
	got, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(want), string(got), "the file is stale: run `go generate ./internal/app/...`"+also)
}
