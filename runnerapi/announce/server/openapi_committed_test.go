package server_test

import (
	"bytes"
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/server"
)

//go:generate go test . -run TestOpenAPI_Committed -update

var update = flag.Bool("update", false, "write docs/openapi-runners.json anew")

const openAPIFile = "../../../docs/openapi-runners.json"

func TestOpenAPI_Committed(t *testing.T) {
	now, err := server.OpenAPI("v1")
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.WriteFile(openAPIFile, now, 0o644))
	}
	committed, err := os.ReadFile(openAPIFile)
	require.NoError(t, err)
	if !bytes.Equal(now, committed) {
		t.Errorf("%s is not what the code says; run: go generate ./runnerapi/announce/server", openAPIFile)
	}
}
