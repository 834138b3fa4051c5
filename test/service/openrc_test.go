package service

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/test/machine"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// TestService_OpenRC follows docs/cluster-owner/service.md on a machine whose process 1 is
// sysvinit's and whose services are OpenRC's.
func TestService_OpenRC(t *testing.T) {
	suite.Release(t, "the agent as a service of OpenRC")
	g := setUp(t, machine.Bookworm+machine.OpenRC, "rc-status default; tail -n 40 /var/log/pipeops-agent.log")
	g.step(t, "With OpenRC", "")
	g.step(t, "The service with OpenRC", "")

	id := g.plane.AwaitOnline(t, time.Time{})
	t.Run("is its own user, and keeps its secrets", g.isAUserOfItsOwn)
	t.Run("doctor is content beside it", func(t *testing.T) {
		assert.Contains(t, g.must(t, "pipeops-agent doctor --service", "no_proxy=*"), "accepts the agent's certificate")
	})
	t.Run("comes back when it is killed, as the same agent", func(t *testing.T) {
		stopped := g.pid(t, "")
		g.must(t, "sed -i 's/^respawn_delay=.*/respawn_delay=1/' /etc/init.d/pipeops-agent\nrc-service pipeops-agent restart")
		before := g.pid(t, stopped) // the heartbeats that follow are not those of the process that is being stopped
		since := time.Now()
		assert.Equal(t, id, g.plane.AwaitOnline(t, since))
		g.must(t, "kill -KILL "+before)
		after := g.pid(t, before)
		since = time.Now()
		assert.Equal(t, id, g.plane.AwaitOnline(t, since), "process %s, then %s", before, after)
		assert.Contains(t, g.must(t, "rc-service pipeops-agent status"), "started")
	})
	t.Run("updates itself", func(t *testing.T) {
		g.updates(t, id, func() string { return g.pid(t, "") }, "rc-service pipeops-agent restart")
	})
	t.Run("is started with the machine", func(t *testing.T) {
		assert.Contains(t, g.must(t, "rc-update show default"), "pipeops-agent")
	})
	t.Run("drains when it is stopped", func(t *testing.T) {
		g.must(t, "rc-service pipeops-agent stop\n! rc-service pipeops-agent status\n! pgrep -x pipeops-agent")
		assert.Contains(t, g.must(t, "tail -n 3 /var/log/pipeops-agent.log"), "agent stopped; Apps keep running")
	})
	g.step(t, "Uninstall with OpenRC", "")
	assert.Empty(t, g.must(t, "ls -d /etc/pipeops /var/lib/*pipeops* /var/log/*pipeops* /etc/init.d/*pipeops* /usr/local/bin/pipeops* 2>/dev/null || true"))
}

// pid waits until the agent runs as another process than that one.
func (g *guided) pid(t *testing.T, not string) (pid string) {
	t.Helper()
	g.await(t, "the agent runs", func(ctx context.Context) error {
		out, err := g.run(ctx, "", "pgrep -u pipeops-agent -x pipeops-agent")
		if pid = strings.TrimSpace(out); err == nil && (pid == not || strings.Contains(pid, "\n")) {
			err = fmt.Errorf("processes that are there: %s", pid)
		}
		return err
	})
	return pid
}

// isAUserOfItsOwn looks at the process and its files from outside.
func (g *guided) isAUserOfItsOwn(t *testing.T) {
	pid := g.pid(t, "")
	status := g.must(t, "cat /proc/"+pid+"/status")
	assert.NotContains(t, status, "Uid:\t0")
	assert.Regexp(t, `CapEff:\s+0000000000000000`, status)
	assert.Regexp(t, `NoNewPrivs:\s+1`, status)
	secret := strings.Split(g.token, "_")[2]
	assert.NotContains(t, g.must(t, "cat /proc/"+pid+"/cmdline /proc/"+pid+"/environ | tr '\\0' '\\n'"), secret)
	assert.NotContains(t, g.must(t, "cat /var/log/pipeops-agent.log"), secret)
	for file, want := range map[string]string{
		"/etc/pipeops/agent.env":               "root 600",
		"/etc/pipeops/token":                   "pipeops-agent 600",
		"/etc/pipeops/kubeconfig":              "pipeops-agent 600",
		"/var/lib/pipeops-agent":               "pipeops-agent 700",
		"/var/lib/pipeops-agent/identity.json": "pipeops-agent 600",
		"/var/log/pipeops-agent.log":           "pipeops-agent 600",
	} {
		assert.Equal(t, want+"\n", g.must(t, "stat -c '%U %a' "+file), file)
	}
}
