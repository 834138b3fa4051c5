package install

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/machine"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// TestInstall_Faults meets one fault after the other on one machine, and looks at what is
// said of it: what, why, and the command that helps.
func TestInstall_Faults(t *testing.T) {
	suite.Release(t, "every fault of an installation")
	w := theWorld(t)
	c := newComputer(t, w, "faults", machine.Bookworm).with("AGENT_TOKEN", unusedToken)
	require.NoError(t, c.WriteFile("/root/install.sh", read(t, "../../scripts/install.sh"), 0o755))
	const k3s = k3sAssets + "k3s"

	for _, fault := range []struct {
		name   string
		breaks func(t *testing.T) (heal func())
		with   []string
		run    string // instead of a plain install
		code   int
		says   []string
	}{
		{name: "an ordinary user", run: "chmod 755 /root && setpriv --reuid 65534 --clear-groups env HOME=/tmp/nobody bash /root/install.sh; code=$?; rm -rf /tmp/nobody; exit $code",
			code: 3, says: []string{"root is needed", "sudo -E"}},
		{name: "a token that was cut off", with: []string{"AGENT_TOKEN", unusedToken[:70]}, code: 2, says: []string{"AGENT_TOKEN is not a token"}},
		{name: "settings missing", with: []string{"AGENT_TOKEN", "", "CLUSTER_NAME", ""}, code: 2, says: []string{"AGENT_TOKEN is not set", "CLUSTER_NAME is not set"}},
		{name: "no DNS for the control plane", with: []string{"PIPEOPS_CONTROL_PLANE_URL", "https://cp.invalid"}, code: 5,
			says: []string{"control plane at https://cp.invalid is not reached", "cannot be resolved", "getent hosts cp.invalid"}},
		{name: "no DNS for downloads", with: []string{"PIPEOPS_MIRROR", ""}, code: 5, says: []string{"github.com cannot be resolved: no DNS"}},
		{name: "control plane away", with: []string{"PIPEOPS_CONTROL_PLANE_URL", "https://" + w.network.Host + ":1"}, code: 5, says: []string{"does not answer"}},
		{name: "half a download", code: 5, says: []string{"the connection broke in the middle", "run it again"},
			breaks: func(*testing.T) func() { return w.site.fault(k3s, w.site.half(k3s)) }},
		{name: "a proxy's page instead", code: 6, says: []string{"k3s is not what its publisher made"},
			breaks: func(*testing.T) func() { return w.site.fault(k3s, other) }},
		{name: "another k3s, with its list of checksums", with: []string{"PIPEOPS_K3S_SHA256", ""}, code: 6, says: []string{"k3s is not what its publisher made"}},
		{name: "a wrong checksum of k3s' installer", code: 6, says: []string{"install.sh is not what its publisher made"},
			breaks: func(*testing.T) func() { return w.site.fault(k3sSource+"install.sh", other) }},
		{name: "an untrusted certificate", with: []string{"PIPEOPS_CA_FILE", ""}, code: 5, says: []string{"is not trusted", "PIPEOPS_CA_FILE"}},
		{name: "no such version", with: []string{"K3S_VERSION", "v1.0.0+k3s1", "PIPEOPS_K3S_SHA256", ""}, code: 5, says: []string{"404", "check the version"}},
		{name: "a clock that is off", with: []string{"PIPEOPS_CONTROL_PLANE_URL", clockAhead(t, w)}, code: 4, says: []string{"clock is", "timedatectl set-ntp true"}},
		{name: "execution refused, as SELinux does", breaks: c.refuseExecution, code: 4, says: []string{"may not be executed", "restorecon"}},
		{name: "another run at work", run: "mkdir -p " + stateDir + " && ln -s $$ " + stateDir + "/lock; bash /root/install.sh; code=$?; rm " + stateDir + "/lock; exit $code",
			code: 10, says: []string{"another run", "is at work"}},
		{name: "an unknown command", run: "bash /root/install.sh instal", code: 2, says: []string{"install.sh help"}},
	} {
		t.Run(fault.name, func(t *testing.T) {
			if fault.breaks != nil {
				defer fault.breaks(t)()
			}
			run := fault.run
			if run == "" {
				run = "bash /root/install.sh"
			}
			r := c.with(fault.with...).bash(t, run)
			assert.Equal(t, fault.code, r.code, r.said)
			for _, words := range fault.says {
				assert.Contains(t, r.said, words)
			}
			assert.NotContains(t, r.said, "unexpectedly")
			assert.NotContains(t, r.said+c.file(installLog), "not-used-before")
		})
	}
	t.Run("nothing of it all stays", func(t *testing.T) {
		r := c.bash(t, "bash /root/install.sh uninstall --yes && test ! -e /usr/local/bin/k3s -a ! -e /etc/rancher && ls "+stateDir)
		assert.Contains(t, r.said, "everything that was installed is gone")
		assert.Contains(t, r.said, "cannot access '"+stateDir+"'")
	})
}

func (c *computer) refuseExecution(t *testing.T) (heal func()) {
	return c.until(t, "mount -t tmpfs -o noexec tmpfs /usr/local/bin", "umount /usr/local/bin")
}

// until breaks something, and answers what fixes it.
func (c *computer) until(t *testing.T, breaks, fixes string) (heal func()) {
	t.Helper()
	r := c.bash(t, breaks)
	require.Zero(t, r.code, r.said)
	return func() {
		r := c.bash(t, fixes)
		assert.Zero(t, r.code, r.said)
	}
}

// clockAhead is a control plane by whose clock it is tomorrow.
func clockAhead(t *testing.T, w *world) (url string) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Date", time.Now().Add(24*time.Hour).UTC().Format(http.TimeFormat))
	}))
	_ = server.Listener.Close()
	server.Listener = w.listen(t)
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL
}

// TestInstall_HalfScriptDoesNothing runs install.sh as it would be were the download cut.
func TestInstall_HalfScriptDoesNothing(t *testing.T) {
	lines := strings.SplitAfter(string(read(t, "../../scripts/install.sh")), "\n")
	for cut := 0; cut < len(lines)-2; cut += 37 {
		half := strings.Join(lines[:cut], "") + lines[cut][:len(lines[cut])/2]
		state := t.TempDir()
		cmd := exec.CommandContext(t.Context(), "bash")
		cmd.Stdin = strings.NewReader(half)
		cmd.Env = []string{
			"PATH=" + os.Getenv("PATH"), "HOME=" + state, "AGENT_TOKEN=t", "CLUSTER_NAME=half", "PIPEOPS_CONTROL_PLANE_URL=https://cp.invalid",
			"PIPEOPS_INSTALL_STATE=" + state + "/state", "PIPEOPS_INSTALL_LOG=" + state + "/log",
		}
		out, _ := cmd.CombinedOutput()
		assert.NotContains(t, string(out), "==>", "cut after line %d", cut)
		left, err := os.ReadDir(state)
		require.NoError(t, err)
		assert.Empty(t, left, "cut after line %d", cut)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	return content
}
