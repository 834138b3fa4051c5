package selfupdate

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/release"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/test/cluster"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/inputs"
	"github.com/pipeops/pipeops-vm-agent/test/releasetest"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// pods is an agent in its own cluster.
type pods struct {
	*harness.System
	t *testing.T
}

func newPods(t *testing.T) *pods {
	t.Helper()
	if testing.Short() || os.Geteuid() != 0 {
		t.Skip("brings up a cluster, which needs root")
	}
	sys, err := harness.New(harness.Options{
		Name: fmt.Sprintf("selfupdate-%d", os.Getpid()), Out: os.Stderr, AgentVersion: "v1.0.0",
		ControlPlaneArgs: []string{"--heartbeat-interval", "2s"},
		AgentSettings: map[string]string{
			"PIPEOPS_UPDATE_KEYS": releasetest.PublicKey, "PIPEOPS_UPDATE_DEADLINE": "15s",
		},
	})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, sys.Close(context.Background())) })
	sys.Binaries, err = harness.Build(t.Context())
	require.NoError(t, err)
	require.NoError(t, sys.StartKubernetes(t.Context()))
	require.NoError(t, sys.StartProduct(t.Context(), "shop"))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the agent's log:\n%s", sys.AgentLog(context.Background(), 60))
		}
	})
	return &pods{sys, t}
}

// offer publishes a program as an image of the agent, and offers that.
func (p *pods) offer(version string, program cluster.Program) {
	p.t.Helper()
	program.Name = "pipeops-agent"
	img, err := cluster.BuildProgram(p.t.Context(), program)
	require.NoError(p.t, err)
	_, err = p.LoadImage(p.t.Context(), "pipeops/agent:"+version, img)
	require.NoError(p.t, err)
	digest, err := img.Digest()
	require.NoError(p.t, err)
	dir := releasetest.Write(p.t, filepath.Join(p.t.TempDir(), version), release.Manifest{
		Version: version, Commit: "abc", Images: []release.Image{{Name: "pipeops/agent", Digest: digest.String()}},
		Files: []release.File{{Name: "agent.yaml", SHA256: digest.Hex, Kind: release.KindManifest}},
	})
	_, err = p.ControlPlane(p.t.Context(), "offer", "create", dir, "--url", "https://downloads.example.com/"+version,
		"--key", releasetest.PublicKey, "--agent", "shop")
	require.NoError(p.t, err)
}

// await waits until the agent is online as a version, with its update in a state, and
// answers what it says of that.
func (p *pods) await(version, state, to string) announce.AgentUpdate {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	var found announce.AgentUpdate
	require.NoError(p.t, harness.Eventually(ctx, fmt.Sprintf("%s is online, update %s %s", version, state, to), func(ctx context.Context) error {
		out, err := p.ControlPlane(ctx, "agent", "list", "-o", "json")
		if err != nil {
			return err
		}
		var agents []announce.Agent
		if err := json.Unmarshal([]byte(out), &agents); err != nil || len(agents) != 1 {
			return fmt.Errorf("%s: %w", out, err)
		}
		a := agents[0]
		if a.State == announce.StateOnline && a.AgentVersion == version && a.Update != nil && a.Update.State == state && a.Update.To == to {
			found = *a.Update
			return nil
		}
		return fmt.Errorf("%s, %s, %+v", a.State, a.AgentVersion, a.Update)
	}))
	return found
}

func (p *pods) podName() string {
	p.t.Helper()
	pod, err := p.AgentPod(p.t.Context())
	require.NoError(p.t, err)
	return pod.Name
}

// turnOn follows docs/cluster-owner/self-update.md, but for the window, which is open.
func (p *pods) turnOn() {
	p.t.Helper()
	block, err := harness.ShellWith("docs/cluster-owner/self-update.md", "self-update.yaml")
	require.NoError(p.t, err)
	require.NoError(p.t, inputs.Depend("deployments/self-update.yaml"))
	const documented = "Sat,Sun 02:00-04:00 Europe/Berlin"
	require.Contains(p.t, block, documented)
	bin := p.t.TempDir()
	kubectl := p.Cluster.KubectlCommand(p.t.Context())
	script := fmt.Sprintf("#!/bin/sh\nexec %s \"$@\"\n", strings.Join(kubectl.Args, " "))
	require.NoError(p.t, os.WriteFile(filepath.Join(bin, "kubectl"), []byte(script), 0o755))
	cmd := exec.CommandContext(p.t.Context(), "sh", "-euc", strings.Replace(block, documented, "00:00-24:00 Europe/Berlin", 1))
	cmd.Dir, cmd.Env = filepath.Join(harness.Root(), "deployments"), slices.Concat(kubectl.Env, []string{"PATH=" + bin + ":" + os.Getenv("PATH")})
	out, err := cmd.CombinedOutput()
	require.NoError(p.t, err, "%s", out)
}

// step is a subtest, which the methods then speak for.
func (p *pods) step(name string, f func(t *testing.T)) {
	whole := p.t
	whole.Run(name, func(t *testing.T) {
		p.t = t
		defer func() { p.t = whole }()
		f(t)
	})
}

// TestSelfUpdate_Pods has an agent in a cluster be offered good and broken releases.
func TestSelfUpdate_Pods(t *testing.T) {
	suite.Release(t, "an agent in a cluster updates itself")
	t.Parallel()
	p := newPods(t)
	p.step("it is off until the customer turns it on", func(t *testing.T) {
		out, err := p.ControlPlane(t.Context(), "agent", "list")
		require.NoError(t, err)
		assert.Regexp(t, `v1\.0\.0 +off `, out)
		p.turnOn()
		p.await("v1.0.0", "idle", "")
	})
	first := p.podName()
	p.step("one that never registers is rolled back", func(t *testing.T) {
		p.offer("v1.0.1", cluster.Program{Package: "./test/apps/badagent", LDFlags: "-X main.mode=never"})
		got := p.await("v1.0.0", "failed", "v1.0.1")
		assert.Regexp(t, `^it was not ready in time, and was rolled back: pod pipeops-agent-\S+ says not ready: tunnel: connecting: no route to nowhere$`, got.Reason)
	})
	p.step("one that crashes is rolled back", func(t *testing.T) {
		p.offer("v1.0.2", cluster.Program{Package: "./test/apps/badagent"})
		got := p.await("v1.0.0", "failed", "v1.0.2")
		assert.Contains(t, got.Reason, "exit code 3")
		assert.Contains(t, got.Reason, "the new version does not understand its old state")
	})
	p.step("the old one went on serving all the time", func(t *testing.T) {
		assert.Equal(t, first, p.podName())
		out, err := p.ControlPlane(t.Context(), "agent", "get", "shop", "--events", "100")
		require.NoError(t, err)
		assert.NotContains(t, out, "agent.offline")
		assert.Contains(t, out, "failed v1.0.2")
	})
	p.step("a good one takes over", func(t *testing.T) {
		p.offer("v1.1.0", cluster.Program{Package: "./cmd/agent", Version: "v1.1.0"})
		assert.Equal(t, announce.AgentUpdate{State: "done", From: "v1.0.0", To: "v1.1.0"}, p.await("v1.1.0", "done", "v1.1.0"))
		out, err := p.Cluster.Kubectl(t.Context(), "-n", "pipeops", "get", "deployment", "pipeops-agent", "-o", "jsonpath={.spec.template.spec.containers[0].image}")
		require.NoError(t, err)
		assert.Regexp(t, `^pipeops/agent@sha256:[0-9a-f]{64}$`, string(out))
	})
}
