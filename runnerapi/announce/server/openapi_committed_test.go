package server_test

import (
	"bytes"
	"flag"
	"os"
	"testing"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/server"
)

//go:generate go test . -run TestOpenAPI_Committed -update

var update = flag.Bool("update", false, "write docs/openapi-runners.json anew")

const openAPIFile = "../../../docs/openapi-runners.json"

func TestOpenAPI_Committed(t *testing.T) {
	now, err := server.OpenAPI("v1")
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(openAPIFile, now, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	committed, err := os.ReadFile(openAPIFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(now, committed) {
		t.Errorf("%s is not what the code says; run: go generate ./runnerapi/announce/server", openAPIFile)
	}
}
