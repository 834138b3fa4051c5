package service

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/machine"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }

// TestService_Agent follows docs/cluster-owner/service.md, from an empty machine to one
// that has nothing left of the agent.
func TestService_Agent(t *testing.T) {
	suite.Release(t, "the agent as a service of systemd")
	g := setUp(t, machine.Bookworm, "systemctl --no-pager status pipeops-agent; journalctl --no-pager -n 40")
	m, p, token := g.server, g.plane, g.token
	g.step(t, "The service", "")

	id := p.AwaitOnline(t, time.Time{})
	assert.Equal(t, "ready", m.property(t, "StatusText"))
	t.Run("is nobody, and keeps its secrets", func(t *testing.T) { isConfined(t, m, token) })
	t.Run("has a sound unit, exposed less than 3 of 10", func(t *testing.T) {
		m.must(t, "systemd-analyze verify pipeops-agent.service")
		m.must(t, "systemd-analyze security --offline=true --threshold=30 /etc/systemd/system/pipeops-agent.service")
	})
	t.Run("doctor is content beside it, by every way in its guide", func(t *testing.T) {
		ways, err := harness.ShellWith("docs/cluster-owner/doctor.md", "doctor --service  ")
		require.NoError(t, err)
		lines := strings.Split(strings.TrimSpace(ways), "\n")
		require.Len(t, lines, 3) // the second is a pod's: test/e2e
		assert.Contains(t, m.must(t, lines[0], "no_proxy=*"), "accepts the agent's certificate")
		require.NoError(t, m.WriteFile("/root/agent.yaml", fmt.Appendf(nil, "controlPlaneUrl: %s\nclusterName: prod-1\n", p.URL()), 0o600))
		assert.Contains(t, m.must(t, "cd /root; "+strings.Replace(lines[2], "#", "&& exit; test $? = 1 #", 1), "no_proxy=*"), "cluster prod-1, control plane "+p.URL())
		support, err := harness.ShellWith("docs/cluster-owner/doctor.md", "--bundle")
		require.NoError(t, err)
		assert.Contains(t, m.must(t, "cd /root; "+support+"stat -c %a support.tar.gz; tar -tzf support.tar.gz", "no_proxy=*"), "600\n")
	})
	t.Run("comes back when it is killed, as the same agent", func(t *testing.T) {
		m.must(t, "mkdir -p /run/systemd/system/pipeops-agent.service.d\n"+
			"printf '[Service]\\nRestartSec=100ms\\n' >/run/systemd/system/pipeops-agent.service.d/soon.conf\n"+
			"systemctl daemon-reload\nsystemctl kill -s KILL pipeops-agent")
		assert.Equal(t, id, p.AwaitOnline(t, time.Now())) // who was killed may have been heard until then
		assert.Equal(t, "1", m.property(t, "NRestarts"))
	})
	t.Run("updates itself, within systemd's bounds", func(t *testing.T) {
		g.updates(t, id, func() string { return m.property(t, "MainPID") }, "systemctl restart pipeops-agent")
		m.await(t, "systemd is told that it is ready", func(context.Context) error {
			if s := m.property(t, "StatusText"); s != "ready" {
				return fmt.Errorf("it is told %q", s)
			}
			return nil
		})
	})
	t.Run("drains when it is stopped", func(t *testing.T) {
		m.must(t, "systemctl stop pipeops-agent")
		assert.Equal(t, "success", m.property(t, "Result"))
		assert.Contains(t, m.must(t, "journalctl --no-pager -u pipeops-agent -o cat"), "agent stopped; Apps keep running")
	})
	t.Run("is not started again when its settings are wrong", func(t *testing.T) {
		m.must(t, "sed -i s/^CLUSTER_NAME=.*/CLUSTER_NAME=Wrong!/ /etc/pipeops/agent.env\n! systemctl start pipeops-agent")
		assert.Equal(t, "failed", m.property(t, "ActiveState"))
		assert.Equal(t, "2", m.property(t, "ExecMainStatus"))
	})
	g.step(t, "Uninstall", "")
	assert.Empty(t, m.must(t, "ls -d /etc/pipeops /var/lib/*pipeops* /etc/systemd/system/*pipeops* /usr/local/bin/pipeops* 2>/dev/null || true"))
}

// isConfined looks at the process and its files from outside.
func isConfined(t *testing.T, m *server, token string) {
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
