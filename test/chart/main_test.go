// Package chart tests what the Helm charts and the compose file of deployments/
// make: with Helm itself, against the schemas of a real API server, and by
// installing, testing, upgrading and uninstalling on a real cluster with a real
// control plane.
package chart

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/inputs"
	"github.com/pipeops/pipeops-vm-agent/test/programs"
)

const (
	agentChart   = "deployments/helm/pipeops-agent"
	controlChart = "deployments/helm/pipeops-controlplane"
	closeTimeout = 2 * time.Minute
)

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		fmt.Println("tests of the charts build Helm and need a cluster: not run with -short")
		return
	}
	if err := buildTools(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := inputs.Main(m)
	if err := stopSystem(); err != nil {
		fmt.Fprintln(os.Stderr, "clean-up:", err)
		code = 1
	}
	os.Exit(code)
}

// tools are the paths of what the tests run.
var tools = map[string]string{}

func buildTools() error {
	for _, tool := range []programs.Program{programs.Helm, programs.Kubeconform} {
		file, err := tool.Build(context.Background())
		if err != nil {
			return err
		}
		tools[filepath.Base(file)] = file
	}
	return inputs.Depend("deployments") // which Helm reads
}

// try runs one of the tools at the top of the repository. Of Helm it keeps what
// it writes into a folder of the test's own.
func try(t *testing.T, stdin, tool string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, tools[tool], args...)
	cmd.Dir = harness.Root()
	home := t.TempDir()
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// helm runs Helm and wants success.
func helm(t *testing.T, args ...string) string {
	t.Helper()
	stdout, stderr, err := try(t, "", "helm", args...)
	require.NoError(t, err, "helm %s\n%s%s", strings.Join(args, " "), stdout, stderr)
	return stdout
}

// valuesFiles are the example values of a chart.
func valuesFiles(t *testing.T, chart string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(harness.Root(), chart, "ci", "*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	return files
}
