package service

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/test/freeport"
	"github.com/pipeops/pipeops-vm-agent/test/machine"
	"github.com/pipeops/pipeops-vm-agent/test/programs"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// TestService_ControlPlane follows docs/operator/service.md, from an empty machine to one that
// has nothing left of the control plane.
func TestService_ControlPlane(t *testing.T) {
	suite.Release(t, "the control plane as a service of systemd")
	if testing.Short() || os.Geteuid() != 0 {
		t.Skip("boots a machine, which needs root")
	}
	m := boot(t, machine.Bookworm, "systemctl --no-pager status pipeops-controlplane; journalctl --no-pager -n 40", unpacked(t, programs.ControlPlane)+":"+release)
	m.unit = "pipeops-controlplane"
	api, tunnel, edge := freeport.Address(t), freeport.Address(t), freeport.Address(t)
	g := &guided{
		server: m, guide: controlPlaneGuide, steps: readGuide(t, controlPlaneGuide),
		edit: "EDITOR=sed -i -e s#cp.example.com:8443#" + api + "# -e s#cp.example.com:7000#" + tunnel + "# -e s#cp.example.com:8444#" + edge + "# " +
			"-e s#127.0.0.1:9090## -e $aPIPEOPS_API_LISTEN=" + api + "\\nPIPEOPS_TUNNEL_LISTEN=" + tunnel + "\\nPIPEOPS_EDGE_LISTEN=" + edge,
	}
	g.step(t, "The settings", "")
	g.step(t, "The service", "")
	assert.Equal(t, "active", m.property(t, "ActiveState"))
	assert.Equal(t, "ready", m.property(t, "StatusText"))
	token := strings.TrimSpace(m.must(t, "exec 2>/dev/null; "+g.steps["A token"]))
	parsed, err := controlapi.ParseToken(token)
	require.NoError(t, err)
	assert.Equal(t, "https://"+api, parsed.URL())

	t.Run("is nobody, and has one capability", func(t *testing.T) {
		status := m.must(t, "cat /proc/"+m.property(t, "MainPID")+"/status")
		assert.NotContains(t, status, "Uid:\t0")
		assert.Regexp(t, `CapBnd:\s+0000000000000400`, status) // CAP_NET_BIND_SERVICE
		assert.Regexp(t, `Seccomp:\s+2`, status)
		assert.Equal(t, "root 600\n", m.must(t, "stat -c '%U %a' /etc/pipeops/controlplane.env"))
		m.must(t, "systemd-analyze verify pipeops-controlplane.service")
		m.must(t, "systemd-analyze security --offline=true --threshold=30 /etc/systemd/system/pipeops-controlplane.service")
	})
	t.Run("is backed up each day", func(t *testing.T) {
		g.step(t, "A daily backup", "")
		m.must(t, "systemd-analyze verify pipeops-controlplane-backup.timer pipeops-controlplane-backup.service")
		m.must(t, "systemctl is-active pipeops-controlplane-backup.timer\nsystemctl start pipeops-controlplane-backup")
		assert.Regexp(t, `^[1-9]\d+ 600\n$`, m.must(t, "stat -c '%u %a' /var/lib/pipeops-controlplane-backup/registry.db"))
	})
	t.Run("root makes credentials beside it", func(t *testing.T) {
		m.must(t, "cd /root; "+g.steps["Credentials"])
		assert.Contains(t, m.must(t, "cd /root; pipeops-controlplane token list --credentials alice.json", "no_proxy=*"), parsed.ID)
	})
	t.Run("comes back when it is killed, with its data", func(t *testing.T) {
		m.must(t, "mkdir -p /run/systemd/system/pipeops-controlplane.service.d\n"+
			"printf '[Service]\\nRestartSec=100ms\\n' >/run/systemd/system/pipeops-controlplane.service.d/soon.conf\n"+
			"systemctl daemon-reload\nsystemctl kill -s KILL pipeops-controlplane")
		m.await(t, "it serves again", func(context.Context) error {
			if m.property(t, "NRestarts") != "1" || m.property(t, "ActiveState") != "active" {
				return errors.New("not yet")
			}
			return nil
		})
		assert.Contains(t, m.must(t, "pipeops-controlplane token list"), parsed.ID)
	})
	t.Run("is not started again when its settings are wrong", func(t *testing.T) {
		m.must(t, "systemctl stop pipeops-controlplane")
		assert.Equal(t, "success", m.property(t, "Result"))
		m.must(t, "sed -i s#^PIPEOPS_LOG_LEVEL=.*#PIPEOPS_LOG_LEVEL=loud# /etc/pipeops/controlplane.env\n! systemctl start pipeops-controlplane")
		assert.Equal(t, "failed", m.property(t, "ActiveState"))
		assert.Equal(t, "2", m.property(t, "ExecMainStatus"))
	})
	g.step(t, "Uninstall", "")
	assert.Empty(t, m.must(t, "ls -d /etc/pipeops/* /var/lib/*pipeops* /etc/systemd/system/*pipeops* /usr/local/bin/pipeops* 2>/dev/null || true"))
}
