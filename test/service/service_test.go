package service

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane"
	"github.com/pipeops/pipeops-vm-agent/internal/image"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/releasetest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }

// release is what an operator has unpacked: deployments, and the program beside it.
const release = "/root/release"

// TestTheAgentAsAService follows docs/service.md, from an empty machine to one
// that has nothing left of the agent.
func TestTheAgentAsAService(t *testing.T) {
	if testing.Short() || os.Geteuid() != 0 {
		t.Skip("boots a machine, which needs root")
	}
	env := kubetest.Full(t)
	p := startPlane(t)
	kubectl := env.Cluster.KubectlCommand(t.Context()).Path
	m := boot(t, kubectl+":/opt/kubernetes", unpacked(t)+":"+release)
	m.write(t, "local/bin/kubectl", "#!/bin/sh\nexec /opt/kubernetes kubectl \"$@\"\n", 0o755)
	admin, err := os.ReadFile(env.Cluster.Kubeconfig())
	require.NoError(t, err)
	m.write(t, "root/kubeconfig", string(admin), 0o600)
	guide := readGuide(t)
	step := func(heading, stdin string) {
		t.Helper()
		m.mustWith(t, stdin, "cd "+release+"/deployments\n"+guide[heading], "KUBECONFIG=/root/kubeconfig", "no_proxy=*",
			"EDITOR=sed -i -e s#https://cp.example.com:8443#"+p.ControlPlane.Advertised().API+"# -e s#127.0.0.1:8080#127.0.0.1:0#")
	}
	step("The cluster", "")
	m.await(t, "Kubernetes has made the token", func(ctx context.Context) error {
		out, err := m.run(ctx, "", "kubectl -n pipeops get secret pipeops-agent-service -o jsonpath={.data.token}", "KUBECONFIG=/root/kubeconfig", "no_proxy=*")
		if out == "" {
			return fmt.Errorf("none yet: %w", err)
		}
		return err
	})
	step("The kubeconfig", "")
	step("The settings", "")
	token := p.token(t)
	step("The token", token+"\n")
	doctor := m.must(t, release+"/pipeops-agent doctor --service", "no_proxy=*")
	assert.Contains(t, doctor, "good for 1 more registrations")
	step("The service", "")

	id := p.awaitOnline(t, time.Time{})
	assert.Equal(t, "ready", m.property(t, "StatusText"))
	t.Run("is nobody, and keeps its secrets", func(t *testing.T) { isConfined(t, m, token) })
	t.Run("has a sound unit, exposed less than 3 of 10", func(t *testing.T) {
		m.must(t, "systemd-analyze verify pipeops-agent.service")
		m.must(t, "systemd-analyze security --offline=true --threshold=30 /etc/systemd/system/pipeops-agent.service")
	})
	t.Run("doctor is content beside it", func(t *testing.T) {
		assert.Contains(t, m.must(t, "pipeops-agent doctor --service", "no_proxy=*"), "accepts the agent's certificate")
	})
	t.Run("comes back when it is killed, as the same agent", func(t *testing.T) {
		since := time.Now()
		m.must(t, "mkdir -p /run/systemd/system/pipeops-agent.service.d\n"+
			"printf '[Service]\\nRestartSec=100ms\\n' >/run/systemd/system/pipeops-agent.service.d/soon.conf\n"+
			"systemctl daemon-reload\nsystemctl kill -s KILL pipeops-agent")
		assert.Equal(t, id, p.awaitOnline(t, since))
		assert.Equal(t, "1", m.property(t, "NRestarts"))
	})
	t.Run("updates itself, within systemd's bounds", func(t *testing.T) { updates(t, m, p, id) })
	t.Run("drains when it is stopped", func(t *testing.T) {
		m.must(t, "systemctl stop pipeops-agent")
		assert.Equal(t, "success", m.property(t, "Result"))
		assert.Contains(t, m.must(t, "journalctl --no-pager -u pipeops-agent -o cat"), "agent stopped; the apps go on running")
	})
	t.Run("is not started again when its settings are wrong", func(t *testing.T) {
		m.must(t, "sed -i s/^CLUSTER_NAME=.*/CLUSTER_NAME=Wrong!/ /etc/pipeops/agent.env\n! systemctl start pipeops-agent")
		assert.Equal(t, "failed", m.property(t, "ActiveState"))
		assert.Equal(t, "2", m.property(t, "ExecMainStatus"))
	})
	step("Look after it", "")
	assert.Empty(t, m.must(t, "ls -d /etc/pipeops /var/lib/*pipeops* /etc/systemd/system/*pipeops* /usr/local/bin/pipeops* 2>/dev/null || true"))
}

// isConfined looks at the process and its files from outside.
func isConfined(t *testing.T, m *machine, token string) {
	t.Helper()
	pid := m.property(t, "MainPID")
	status := m.must(t, "cat /proc/"+pid+"/status")
	assert.NotContains(t, status, "Uid:\t0")
	assert.Regexp(t, `CapBnd:\s+0000000000000000`, status)
	assert.Regexp(t, `NoNewPrivs:\s+1`, status)
	assert.Regexp(t, `Seccomp:\s+2`, status)
	secret := strings.Split(token, "_")[2]
	assert.NotContains(t, m.must(t, "cat /proc/"+pid+"/cmdline /proc/"+pid+"/environ | tr '\\0' '\\n'"), secret)
	assert.NotContains(t, m.must(t, "journalctl --no-pager"), secret)
	assert.Equal(t, "600\n", m.must(t, "stat -c %a /var/lib/private/pipeops-agent/identity.json"))
	for _, file := range []string{"agent.env", "token", "kubeconfig"} {
		assert.Equal(t, "root 600\n", m.must(t, "stat -c '%U %a' /etc/pipeops/"+file))
	}
}

// updates has the agent offered a release, which it takes as the same process of
// systemd, and which is what systemd's next start comes to.
func updates(t *testing.T, m *machine, p *plane, id string) {
	t.Helper()
	site := t.TempDir()
	url, ca := releasetest.Site(t, site)
	roots, err := os.ReadFile(ca)
	require.NoError(t, err)
	m.write(t, "etc/pipeops/downloads.pem", string(roots), 0o644)
	since := time.Now()
	m.mustWith(t, "PIPEOPS_SELF_UPDATE=true\nPIPEOPS_UPDATE_KEYS="+releasetest.PublicKey+"\nPIPEOPS_CA_FILE=/etc/pipeops/downloads.pem\n",
		"cat >>/etc/pipeops/agent.env\nsystemctl restart pipeops-agent")
	assert.Equal(t, id, p.awaitOnline(t, since))
	pid, restarts := m.property(t, "MainPID"), m.property(t, "NRestarts")

	next := filepath.Join(t.TempDir(), "pipeops-agent")
	build := image.GoBuild{Dir: harness.Root(), Package: "./cmd/agent", Output: next, LDFlags: "-X main.version=v1.1.0"}
	require.NoError(t, build.Run(t.Context()))
	offer := controlplane.ReleaseOptions{Keys: releasetest.Keys(t), URL: url + "/v1.1.0"}
	offer.Manifest, offer.Signature = releasetest.Publish(t, site, "v1.1.0", next)
	_, err = p.OfferRelease(t.Context(), offer)
	require.NoError(t, err)
	p.awaitUpdate(t, "v1.1.0", "done")
	assert.Equal(t, pid, m.property(t, "MainPID"))
	assert.Equal(t, restarts, m.property(t, "NRestarts"))
	m.await(t, "systemd is told that it is ready", func(context.Context) error {
		if s := m.property(t, "StatusText"); s != "ready" {
			return fmt.Errorf("it is told %q", s)
		}
		return nil
	})
	since = time.Now()
	m.must(t, "systemctl restart pipeops-agent")
	assert.Equal(t, id, p.awaitOnline(t, since))
	p.awaitUpdate(t, "v1.1.0", "done")
	assert.Contains(t, m.must(t, "readlink /proc/"+m.property(t, "MainPID")+"/exe"), "/pipeops-agent/update/v1.1.0/pipeops-agent")
}

// unpacked is a release's directory: the program, built, and deployments.
func unpacked(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	build := image.GoBuild{Dir: harness.Root(), Package: "./cmd/agent", Output: filepath.Join(dir, "pipeops-agent"), LDFlags: "-X main.version=v1.0.0"}
	require.NoError(t, build.Run(t.Context()))
	out, err := exec.CommandContext(t.Context(), "cp", "-r", filepath.Join(harness.Root(), "deployments"), dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return dir
}

// readGuide takes the commands out of docs/service.md, by the bold words or
// the heading before them.
func readGuide(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(harness.Root(), "docs", "service.md"))
	require.NoError(t, err)
	guide, about := map[string]string{}, ""
	inside := false
	for _, line := range strings.Split(string(text), "\n") {
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

// plane is a control plane in this process, without a broker.
type plane struct {
	*controlplane.ControlPlane
	*controlplane.Admin
}

func startPlane(t *testing.T) *plane {
	t.Helper()
	cfg := controlplane.Config{
		DataDir: t.TempDir(), APIListen: "127.0.0.1:0", TunnelListen: "127.0.0.1:0", EdgeListen: "127.0.0.1:0",
		HeartbeatInterval: time.Second, Log: zerolog.Nop(),
	}
	cp, err := controlplane.New(t.Context(), cfg)
	require.NoError(t, err)
	operator, err := controlplane.OpenAdmin(t.Context(), cfg.DataDir, time.Now)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { assert.NoError(t, cp.Run(ctx)) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		assert.NoError(t, operator.Close())
	})
	return &plane{cp, operator}
}

func (p *plane) token(t *testing.T) string {
	t.Helper()
	token, _, err := p.CreateToken(t.Context(), controlplane.TokenOptions{TTL: time.Hour, Uses: 1})
	require.NoError(t, err)
	return token.Reveal()
}

// awaitUpdate waits until the agent is online as that version, with its update in that
// state.
func (p *plane) awaitUpdate(t *testing.T, version, state string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, harness.Eventually(ctx, "the agent is "+version, func(ctx context.Context) error {
		agents, err := p.Agents(ctx)
		if err != nil || len(agents) != 1 {
			return fmt.Errorf("%d agents: %w", len(agents), err)
		}
		a := agents[0]
		if a.State != announce.StateOnline || a.AgentVersion != version || a.Update == nil || a.Update.State != state {
			return fmt.Errorf("%s, %s, %+v", a.State, a.AgentVersion, a.Update)
		}
		return nil
	}))
}

// awaitOnline waits until the agent was online after that time.
func (p *plane) awaitOnline(t *testing.T, after time.Time) (id string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, harness.Eventually(ctx, "the agent is online", func(ctx context.Context) error {
		agents, err := p.Agents(ctx)
		if err != nil {
			return err
		}
		for _, a := range agents {
			if id = a.ID; a.State == announce.StateOnline && a.LastSeen.After(after) {
				return nil
			}
		}
		return fmt.Errorf("agents: %+v", agents)
	}))
	return id
}
