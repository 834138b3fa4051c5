package contract

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/filelock"
	"github.com/pipeops/pipeops-vm-agent/test/inputs"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

var documents = []string{"openapi", "openapi-operators", "openapi-runners"}

// TestTypes_CompileExamples generates a client's types from each document, and compiles the
// document's examples with them.
func TestTypes_CompileExamples(t *testing.T) {
	suite.Release(t, "types for clients in TypeScript")
	npm, err := exec.LookPath("npm")
	if err != nil {
		t.Skip("npm is not installed")
	}
	programs := packages(t, npm)
	dir := t.TempDir()
	for name, least := range map[string]int{"openapi": 90, "openapi-operators": 30, "openapi-runners": 3} {
		document := inputs.Path("docs/" + name + ".json")
		raw, err := os.ReadFile(document)
		require.NoError(t, err)
		examples, n := typed(t, raw, name)
		assert.GreaterOrEqual(t, n, least, "examples of %s", name)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+"-examples.ts"), []byte(examples), 0o600))
		run(t, filepath.Join(programs, "openapi-typescript"), document, "--output", filepath.Join(dir, name+".ts"))
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.ts"))
	require.NoError(t, err)
	require.Len(t, files, 2*len(documents))
	run(t, filepath.Join(programs, "tsc"), append([]string{"--noEmit", "--strict", "--exactOptionalPropertyTypes"}, files...)...)
}

// TestDocuments_ForGenerators holds what a generated client needs, and what servers answer before
// they choose a call.
func TestDocuments_ForGenerators(t *testing.T) {
	for _, name := range documents {
		raw, err := os.ReadFile("../../docs/" + name + ".json")
		require.NoError(t, err)
		d, err := Read(raw)
		require.NoError(t, err)
		servers, _ := at(d.root, "servers").([]any)
		assert.NotEmpty(t, servers, name)
		for _, op := range d.Operations {
			if op.ID == kubernetesAPI {
				continue
			}
			assert.Contains(t, op.Responses, "417", "%s %s", name, op.ID)
			assert.Contains(t, op.Responses, "431", "%s %s", name, op.ID)
		}
		schemas, _ := at(d.root, "components", "schemas").(map[string]any)
		for schema := range schemas {
			properties, _ := at(schemas, schema, "properties").(map[string]any)
			for property := range properties {
				assert.Nil(t, at(properties, property, "default"), "%s: %s.%s: a generator takes it for required", name, schema, property)
			}
		}
	}
}

// typed returns a program of a document's examples with their types, and how many there are.
func typed(t *testing.T, document []byte, module string) (program string, n int) {
	t.Helper()
	d, err := Read(document)
	require.NoError(t, err)
	text := &strings.Builder{}
	fmt.Fprintf(text, "import type { components, operations } from \"./%s\";\nexport const examples = [\n", module)
	add := func(of string, example any) {
		n++
		raw, err := json.Marshal(example)
		require.NoError(t, err)
		fmt.Fprintf(text, "  %s satisfies %s,\n", raw, of)
	}
	for _, op := range d.Operations {
		for media, content := range op.RequestBody.Content {
			if content.Example != nil {
				add(fmt.Sprintf("NonNullable<operations[%q][\"requestBody\"]>[\"content\"][%q]", op.ID, media), content.Example)
			}
		}
	}
	schemas, _ := at(d.root, "components", "schemas").(map[string]any)
	for schema := range schemas {
		properties, _ := at(schemas, schema, "properties").(map[string]any)
		for property := range properties {
			examples, _ := at(properties, property, "examples").([]any)
			for _, example := range examples {
				add(fmt.Sprintf("components[\"schemas\"][%q][%q]", schema, property), example)
			}
		}
	}
	text.WriteString("];\n")
	return text.String(), n
}

// packages returns the folder of the programs in types/package-lock.json, which has their digests.
func packages(t *testing.T, npm string) string {
	t.Helper()
	lock, err := os.ReadFile("types/package-lock.json")
	require.NoError(t, err)
	manifest, err := os.ReadFile("types/package.json")
	require.NoError(t, err)
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	dir := filepath.Join(cache, "pipeops-test", "npm", fmt.Sprintf("%x", sha256.Sum256(append(manifest, lock...))))
	require.NoError(t, os.MkdirAll(dir, 0o700))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	unlock, err := filelock.Wait(ctx, filepath.Join(dir, "lock"), nil)
	require.NoError(t, err)
	defer func() { assert.NoError(t, unlock()) }()
	done := filepath.Join(dir, "complete")
	if _, err := os.Stat(done); errors.Is(err, fs.ErrNotExist) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "package.json"), manifest, 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "package-lock.json"), lock, 0o600))
		run(t, npm, "ci", "--prefix", dir, "--ignore-scripts", "--no-audit", "--no-fund")
		require.NoError(t, os.WriteFile(done, nil, 0o600))
	}
	return filepath.Join(dir, "node_modules", ".bin")
}

func run(t *testing.T, program string, args ...string) {
	t.Helper()
	var said bytes.Buffer
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Stdout, cmd.Stderr = &said, &said
	require.NoError(t, cmd.Run(), "%s: %s", filepath.Base(program), &said)
}
