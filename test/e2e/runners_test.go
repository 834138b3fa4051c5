package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/inputs"
	"github.com/pipeops/pipeops-vm-agent/test/programs"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// python is Debian's, for which test/setup installs pika.
const python = "/usr/bin/python3"

// example returns the path of a file in examples/runners, on which the test depends from then on.
func example(t *testing.T, name string) string {
	t.Helper()
	require.NoError(t, inputs.Depend("examples/runners"))
	return filepath.Join(inputs.Root(), "examples", "runners", name)
}

// hasFields reports whether a line of JSON has each of these fields.
func hasFields(fields ...string) func(line string) bool {
	return func(line string) bool {
		for _, field := range fields {
			if !strings.Contains(line, field) {
				return false
			}
		}
		return true
	}
}

// TestRunner_InPython follows announcements over RabbitMQ: the agent that is online gets the App,
// and gets it again when it was offline. The outcomes arrive.
func TestRunner_InPython(t *testing.T) {
	suite.Release(t, "Runners in other languages")
	if err := exec.CommandContext(t.Context(), python, "-c", "import pika").Run(); err != nil {
		t.Skip("pika is not installed")
	}
	removeApp(t, "from-python")
	_, err := sys.CreateRunner(t.Context(), "python")
	require.NoError(t, err)
	out, err := exec.CommandContext(t.Context(), python, "-B", example(t, "runner.py"), "/nowhere.json", namespace+"/from-python", "spec.json").CombinedOutput()
	require.Error(t, err)
	assert.Equal(t, "runner.py: [Errno 2] No such file or directory: '/nowhere.json'\n", string(out))
	spec := filepath.Join(t.TempDir(), "spec.json")
	require.NoError(t, os.WriteFile(spec, []byte(`{"image": "`+image+`", "ports": [{"port": 8080}]}`), 0o600))

	cmd := exec.Command(python, "-B", example(t, "runner.py"), sys.RunnerCredentials("python"), namespace+"/from-python", spec)
	cmd.Stderr = os.Stderr
	stream, err := harness.StartStream(cmd)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, stream.Close()) })
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	await := func(fields ...string) {
		t.Helper()
		_, err := stream.Await(ctx, hasFields(fields...))
		require.NoError(t, err)
	}
	await(`"agent": "`+agentName+`"`, `"deployed": "from-python"`)
	await(`"state": "app.healthy"`)
	pipeops(t, "status", agentName, "from-python")

	pipeops(t, "deploy", agentName, "from-python", "--image", "registry.invalid/none:1", "--no-wait")
	await(`"state": "app.degraded"`, `"cause": "Image`, `"fix": `)

	require.NoError(t, sys.ScaleAgent(ctx, 0))
	_, err = sys.AwaitTimeline(ctx, agentName, "agent.offline")
	require.NoError(t, err)
	require.NoError(t, sys.ScaleAgent(ctx, 1))
	await(`"deployed": "from-python"`, `"generation": 3`)
}

// TestRunner_InTypeScript deploys to the agents of a label, and exits with the outcome.
func TestRunner_InTypeScript(t *testing.T) {
	suite.Release(t, "Runners in other languages")
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("Node.js is not installed")
	}
	removeApp(t, "from-typescript")
	label(t, "language=typescript")
	t.Cleanup(func() {
		_, err := sys.ControlPlane(context.Background(), "agent", "label", agentName, "language-")
		assert.NoError(t, err)
	})
	program := compileTypeScript(t, example(t, "runner.ts"))
	run := func(args ...string) (out string, err error) {
		cmd := exec.CommandContext(t.Context(), node, append([]string{program, sys.RunnerCredentials(runner)}, args...)...)
		raw, err := cmd.CombinedOutput()
		return string(raw), err
	}
	app := namespace + "/from-typescript"

	out, err := run("language=typescript", app, image)
	require.NoError(t, err, out)
	assert.Contains(t, out, `"phase":"Healthy"`)
	pipeops(t, "status", agentName, "from-typescript")

	out, err = run("language=typescript", app, "registry.invalid/none:1")
	require.Error(t, err, out)
	assert.Contains(t, out, `"phase":"Degraded"`, "the pods of before still serve")
	assert.Contains(t, out, `"cause":"Image`)

	out, err = run("language=none", app, image)
	require.Error(t, err, out)
	assert.Contains(t, out, "no agent has the label language=none")

	out, err = run("language", app, image)
	require.Error(t, err, out)
	assert.Contains(t, out, "usage: ")

	out, err = run("language=typescript", app, "two words")
	require.Error(t, err, out)
	assert.Contains(t, out, "invalid: image ", "the agent's answer, and the field")
}

// compileTypeScript returns a program that each version of Node.js runs.
func compileTypeScript(t *testing.T, file string) string {
	t.Helper()
	esbuild, err := programs.Esbuild.Build(t.Context())
	require.NoError(t, err)
	program := filepath.Join(t.TempDir(), "runner.mjs")
	out, err := exec.CommandContext(t.Context(), esbuild, file, "--platform=node", "--format=esm", "--target=node18", "--outfile="+program).CombinedOutput()
	require.NoError(t, err, string(out))
	return program
}
