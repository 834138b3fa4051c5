package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/inputs"
	"github.com/pipeops/pipeops-vm-agent/test/programs"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// demoPatience bounds one `make demo`, with its parts built.
const demoPatience = 15 * time.Minute

// makeDemo runs `make demo` as a user does who has nothing set but these variables. It returns
// what was printed, and the exit code of make.
func makeDemo(t *testing.T, variables ...string) (said string, code int) {
	t.Helper()
	require.NoError(t, inputsOfMake(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), demoPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "make", "--no-print-directory", "demo")
	cmd.Dir = harness.Root()
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		ofMake := name == "MAKEFLAGS" || name == "MFLAGS" || name == "MAKELEVEL" || name == "CGO_ENABLED"
		if !ofMake && name != "KUBECONFIG" && !strings.HasPrefix(name, "DEMO_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	// A demo that a developer watches meanwhile has another name.
	cmd.Env = append(append(cmd.Env, fmt.Sprintf("DEMO_NAME=test-%d-demo", os.Getpid())), variables...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) } // it takes down what it has started
	cmd.WaitDelay = closeTimeout + time.Minute
	out, err := cmd.CombinedOutput()
	if err != nil {
		require.IsType(t, &exec.ExitError{}, err, string(out))
	}
	require.NoError(t, ctx.Err(), string(out))
	return string(out), cmd.ProcessState.ExitCode()
}

// inputsOfMake has the test depend on all that make reads and compiles: Go's test cache sees only
// what the test's own process opens.
func inputsOfMake(ctx context.Context) error {
	err := inputs.Depend("Makefile", "deployments", "test/apps", "test/setup")
	for _, p := range []programs.Program{
		programs.Agent, programs.ControlPlane, programs.Runner,
		{Package: "./test/demo"}, {Package: "./test/setup"},
		{Package: "./test/cluster/cmd/cluster"}, {Package: "./test/debian/cmd/server"},
	} {
		err = errors.Join(err, p.Depend(ctx))
	}
	return err
}

// TestDemo_Runs runs the whole demo, and reads what a user reads.
func TestDemo_Runs(t *testing.T) {
	suite.Release(t, "the demo, which CI runs beside")
	if testing.Short() || os.Geteuid() != 0 {
		t.Skip("brings up a cluster, as root")
	}
	temporary := t.TempDir()
	said, code := makeDemo(t, "DEMO_KEEP=0", "TMPDIR="+temporary)
	t.Log(said)
	require.Zero(t, code)
	assert.True(t, strings.HasSuffix(said, "\ndemo: ok\n"))
	assert.NotContains(t, said, "FAILED")
	showed, table := sections(t, said)
	for step, seen := range map[string]string{
		"The Runner hears of it over RabbitMQ":       `demo.*online`,
		"Runner: a secret, and an app that reads it": `web .*1/1`,
		"Runner: scale from 1 to 3":                  `web .*3/3`,
		"The app answers":                            greeting,
		"The public reaches it over HTTPS":           `https://web-pipeops-demo-demo\.apps\.example\.com/: .*` + greeting,
		"Directly, at the cluster's load balancer":   `shop\.example\.org/, direct: .*` + greeting + `.* tunnel: .*` + greeting,
		"Runner: a deploy that cannot work":          `exit code 3 after`,
		"The control plane's timeline of it all":     `app\.healthy and app\.failed among them`,
	} {
		assert.Regexp(t, seen, showed[step], step)
		assert.Regexp(t, `(?m)^\d+\. `+regexp.QuoteMeta(step)+`  +\S`, table)
	}
	left, err := filepath.Glob(filepath.Join(temporary, "pipeops-*"))
	require.NoError(t, err)
	assert.Empty(t, left, "the demo takes everything down")
}

// sections returns what each step showed, by its title, and the table at the end. The steps have
// to stand in their order.
func sections(t *testing.T, said string) (showed map[string]string, table string) {
	t.Helper()
	steps, table, found := strings.Cut(said, "\nSTEP ")
	require.True(t, found, "there is no table at the end")
	showed = map[string]string{}
	all := (&demo{}).acts()
	parts := slices.DeleteFunc(strings.Split(steps, "\n== ")[1:], func(part string) bool {
		return strings.HasPrefix(part, "setup ") // what is done before the demo
	})
	require.Len(t, parts, len(all))
	for i, part := range parts {
		heading, text, _ := strings.Cut(part, "\n")
		require.Equal(t, fmt.Sprintf("%d. %s", i+1, all[i].title), heading)
		showed[all[i].title] = text
	}
	return showed, table
}
