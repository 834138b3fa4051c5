package crd_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/app/crd"
	"github.com/pipeops/pipeops-vm-agent/test/golden"
)

func TestCRD_UpToDate(t *testing.T) {
	for name, made := range map[string]func() ([]byte, error){"apps": crd.YAML, "sources": crd.SourceYAML} {
		want, err := made()
		require.NoError(t, err)
		golden.Check(t, "../../../deployments/crds/pipeops.io_"+name+".yaml", string(want), "go generate ./internal/app/...; if the schema of Apps changed, raise app.SchemaVersion too")
	}
}
