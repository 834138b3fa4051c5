package service

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/inputs"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/planetest"
	"github.com/pipeops/pipeops-vm-agent/test/programs"
)

// The guides.
const (
	agentGuide        = "docs/cluster-owner/service.md"
	controlPlaneGuide = "docs/operator/service.md"
)

// release is what an operator has unpacked: deployments, and the program beside it.
const release = "/root/release"

// guided is a machine on which a guide is followed.
type guided struct {
	*server
	guide string
	plane *planetest.Plane
	token string
	steps map[string]string // of the guide
	edit  string            // what the operator's editor does
}

// setUp boots a machine and follows the guide up to the service itself.
func setUp(t *testing.T, suite, logs string) *guided {
	t.Helper()
	if testing.Short() || os.Geteuid() != 0 {
		t.Skip("boots a machine, which needs root")
	}
	env := kubetest.Full(t)
	p := planetest.Start(t)
	kubectl := env.Cluster.KubectlCommand(t.Context()).Path
	g := &guided{
		server: boot(t, suite, logs, kubectl+":/opt/kubernetes", unpacked(t, programs.Agent)+":"+release),
		plane:  p, guide: agentGuide, steps: readGuide(t, agentGuide), token: p.Token(t, administration.TokenOptions{TTL: time.Hour, Uses: 1}),
		edit: "EDITOR=sed -i -e s#https://cp.example.com:8443#" + p.URL() + "# -e s#127.0.0.1:8080#127.0.0.1:0#",
	}
	require.NoError(t, g.WriteFile("/usr/local/bin/kubectl", []byte("#!/bin/sh\nexec /opt/kubernetes kubectl \"$@\"\n"), 0o755))
	admin, err := os.ReadFile(env.Cluster.Kubeconfig())
	require.NoError(t, err)
	require.NoError(t, g.WriteFile("/root/kubeconfig", admin, 0o600))

	g.step(t, "The cluster", "")
	g.await(t, "Kubernetes has made the token", func(ctx context.Context) error {
		out, err := g.run(ctx, "", "kubectl -n pipeops get secret pipeops-agent-service -o jsonpath={.data.token}", "KUBECONFIG=/root/kubeconfig", "no_proxy=*")
		if out == "" {
			return fmt.Errorf("none yet: %w", err)
		}
		return err
	})
	g.step(t, "The kubeconfig", "")
	g.step(t, "The settings", "")
	g.step(t, "The token", g.token+"\n")
	doctor := g.must(t, release+"/pipeops-agent doctor --service", "no_proxy=*")
	assert.Contains(t, doctor, "good for 1 more registrations")
	return g
}

// step runs the commands of one of the guide's steps.
func (g *guided) step(t *testing.T, heading, stdin string) {
	t.Helper()
	require.NotEmpty(t, g.steps[heading], "%s has no commands for %q", g.guide, heading)
	g.mustWith(t, stdin, "cd "+release+"/deployments\n"+g.steps[heading], "KUBECONFIG=/root/kubeconfig", "no_proxy=*", g.edit)
}

// unpacked is a release's directory: the program, built, and deployments.
func unpacked(t *testing.T, of programs.Program) string {
	t.Helper()
	dir := t.TempDir()
	program, err := of.At("v1.0.0").Build(t.Context())
	require.NoError(t, err)
	require.NoError(t, inputs.Depend("deployments"))
	out, err := exec.CommandContext(t.Context(), "cp", "-r", program, filepath.Join(harness.Root(), "deployments"), dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return dir
}

// readGuide takes the commands out of a page, by the bold words or the heading before them.
func readGuide(t *testing.T, page string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(harness.Root(), page))
	require.NoError(t, err)
	guide, about := map[string]string{}, ""
	inside := false
	for line := range strings.SplitSeq(string(text), "\n") {
		switch {
		case strings.HasPrefix(line, "```"):
			inside = line == "```sh"
		case inside:
			guide[about] += line + "\n"
		case strings.HasPrefix(line, "## "):
			about = strings.TrimPrefix(line, "## ")
		case strings.HasPrefix(line, "**"):
			about, _, _ = strings.Cut(strings.TrimPrefix(line, "**"), "**")
		}
	}
	return guide
}
