// Package chart tests what the Helm charts and the compose file of deployments/
// make: with Helm itself, against the schemas of a real API server, and by
// installing, testing, upgrading and uninstalling on a real cluster with a real
// control plane.
package chart

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	helmcmd "helm.sh/helm/v4/pkg/cmd"

	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/inputs"
	"github.com/pipeops/pipeops-vm-agent/test/programs"
)

const (
	agentChart   = "deployments/helm/pipeops-agent"
	controlChart = "deployments/helm/pipeops-controlplane"
	closeTimeout = 2 * time.Minute

	// kubeVersion is the one for which charts are rendered. Helm takes its own default from the
	// program's build information, which a test has not.
	kubeVersion = "1.36.0"
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

// try runs one of the tools at the top of the repository.
func try(t *testing.T, stdin, tool string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, tools[tool], args...)
	cmd.Dir = harness.Root()
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// helm runs one of Helm's commands that need no cluster, and wants success.
func helm(t *testing.T, args ...string) string {
	t.Helper()
	stdout, err := tryHelm(args...)
	require.NoError(t, err, "helm %s\n%s", strings.Join(args, " "), stdout)
	return stdout
}

// inHelm is held during a command of Helm's in this process: its settings are global.
var inHelm sync.Mutex

// tryHelm runs Helm's command line in this process. A process of its own takes a second of the
// processor before it reads a chart. Charts are given by their path in the repository.
func tryHelm(args ...string) (stdout string, err error) {
	for i, arg := range args {
		if strings.HasPrefix(arg, "deployments/") {
			args[i] = filepath.Join(harness.Root(), arg)
		}
	}
	if args[0] == "template" || args[0] == "lint" {
		args = append(args, "--kube-version", kubeVersion)
	}
	inHelm.Lock()
	defer inHelm.Unlock()
	var out strings.Builder
	root, err := helmcmd.NewRootCmd(&out, args, func(bool) {})
	if err != nil {
		return "", err
	}
	root.SetArgs(args)
	root.SetErr(io.Discard) // the caller has the error
	err = root.Execute()
	return out.String(), err
}

// valuesFiles are the example values of a chart.
func valuesFiles(t *testing.T, chart string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(harness.Root(), chart, "ci", "*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	return files
}
