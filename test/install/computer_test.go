package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/machine"
)

const (
	installLog = "/var/log/pipeops-install.log"
	stateDir   = "/var/lib/pipeops-install"
	// patience bounds one run of install.sh.
	patience = 4 * time.Minute
)

// computer is a machine that install.sh runs on, and how it is called there.
type computer struct {
	*machine.Machine
	world *world
	env   map[string]string
}

// newComputer boots a machine that has nothing but the download site's CA.
func newComputer(t *testing.T, w *world, name, suite string) *computer {
	t.Helper()
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	m, err := machine.Boot(t.Context(), machine.Options{
		Name: name, Suite: suite, Network: w.network, Share: filepath.Join(cache, "pipeops-test", "build"),
	})
	require.NoError(t, err)
	c := &computer{Machine: m, world: w, env: map[string]string{
		"PIPEOPS_MIRROR": w.site.URL, "PIPEOPS_CA_FILE": "/etc/site-ca.pem", "CLUSTER_NAME": name,
		"PIPEOPS_CONTROL_PLANE_URL": w.APIURL(), "PIPEOPS_WAIT": "120",
	}}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s's log:\n%s", name, c.file(installLog))
		}
		require.NoError(t, m.Down())
	})
	settings, err := json.Marshal(map[string]string{"version": k3sVersion, "test": w.fake.URL})
	require.NoError(t, err)
	require.NoError(t, m.WriteFile("/etc/fake-k3s.json", settings, 0o600))
	require.NoError(t, m.WriteFile("/etc/site-ca.pem", w.site.ca, 0o644))
	return c
}

// with is the same computer called with other settings; an empty one is unset.
func (c *computer) with(settings ...string) *computer {
	other := *c
	other.env = map[string]string{}
	for name, value := range c.env {
		other.env[name] = value
	}
	for i := 0; i < len(settings); i += 2 {
		other.env[settings[i]] = settings[i+1]
	}
	return &other
}

// result is how a command ended.
type result struct {
	said string
	code int
	took time.Duration
}

// install runs install.sh as the guide has it: downloaded, and piped into bash.
func (c *computer) install(t *testing.T, args ...string) result {
	t.Helper()
	return c.bash(t, fmt.Sprintf("curl -fsSL --cacert /etc/site-ca.pem %s%sdev/install.sh | bash -s -- %s",
		c.world.site.URL, releases, strings.Join(args, " ")))
}

// bash runs commands with the computer's settings, which, as secrets are among
// them, are not in the process's arguments. There is no terminal.
func (c *computer) bash(t *testing.T, commands string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := c.command(ctx, commands)
	start := time.Now()
	out, err := cmd.CombinedOutput()
	r := result{said: string(out), took: time.Since(start)}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		r.code = exit.ExitCode()
	} else {
		require.NoError(t, err)
	}
	return r
}

func (c *computer) command(ctx context.Context, commands string) *exec.Cmd {
	var script strings.Builder
	for name, value := range c.env {
		fmt.Fprintf(&script, "export %s='%s'\n", name, value)
	}
	fmt.Fprintf(&script, "set -o pipefail\n%s\n", commands)
	cmd := c.Command(ctx, "bash", "-s")
	cmd.Stdin = strings.NewReader(script.String())
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// file is a file's content; empty when it is not there.
func (c *computer) file(path string) string {
	text, err := os.ReadFile(filepath.Join(c.Root(), path))
	if err != nil {
		return ""
	}
	return string(text)
}

// tree lists the machine's files that install.sh could touch, with when they
// were changed.
func (c *computer) tree(t *testing.T, times bool) []string {
	t.Helper()
	format, tmp := "%p\n", " /tmp"
	if times { // the time of /tmp is that of the last file that came and went
		format, tmp = "%p %T@\n", ""
	}
	r := c.bash(t, `find /etc /usr /opt /root /var/lib /var/tmp`+tmp+` -xdev \( -path /var/lib/systemd -o -path '/var/lib/rancher/*' -o -path '/tmp/systemd-private*' -o -path /var/lib/pipeops-install \) -prune -o -printf '`+format+`' | sort`)
	require.Zero(t, r.code, r.said)
	return strings.Split(r.said, "\n")
}

// newToken makes an enrolment token.
func newToken(t *testing.T, w *world) string {
	t.Helper()
	token, err := w.CreateToken(t.Context())
	require.NoError(t, err)
	return token
}
