package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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
	// unusedToken has the form of a token.
	unusedToken = "pipeops_aaaaaaaaaaaaaaaa_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	// patience bounds one run of install.sh.
	patience = 8 * time.Minute
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
		Name: name, Suite: suite, Network: w.network, Shares: []string{filepath.Join(cache, "pipeops-test", "build")},
	})
	require.NoError(t, err)
	c := &computer{Machine: m, world: w, env: map[string]string{
		"PIPEOPS_MIRROR": w.site.URL, "PIPEOPS_CA_FILE": "/etc/site-ca.pem", "CLUSTER_NAME": name,
		"PIPEOPS_CONTROL_PLANE_URL": w.APIURL(), "PIPEOPS_WAIT": "240", "KUBECACHEDIR": "/run/kube",
		"COMPONENTS": "none", // they have their own tests
	}}
	maps.Copy(c.env, w.sums)
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
	maps.Copy(other.env, c.env)
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
// With words to replace in the settings that the guide has, it sets those first.
func (c *computer) install(t *testing.T, replace ...string) result {
	t.Helper()
	url := c.published()
	if len(replace) == 0 {
		return c.guide(t, "install", url...)
	}
	return c.guide(t, "settings install", append(url, replace...)...)
}

// guide runs the commands of these names in docs, with words in them replaced.
func (c *computer) guide(t *testing.T, names string, replace ...string) result {
	t.Helper()
	commands, guide, list := "cd /root\n", documented(t), strings.Fields(names)
	for _, name := range list {
		require.Contains(t, guide, name)
		commands += guide[name]
	}
	r := c.bash(t, strings.NewReplacer(replace...).Replace(commands))
	if r.code == 0 {
		noteRun(list)
	}
	return r
}

// published replaces the address that the guide has for the newest release.
func (c *computer) published() []string {
	return []string{"https:/" + latest, c.world.site.URL + releases + "dev/"}
}

// trust has the machine trust the download site, and downloads the scripts.
func (c *computer) trust(t *testing.T) {
	t.Helper()
	r := c.bash(t, "cat /etc/site-ca.pem >>/etc/ssl/certs/ca-certificates.crt")
	require.Zero(t, r.code, r.said)
	r = c.guide(t, "download", c.published()...)
	require.Zero(t, r.code, r.said)
}

// bash runs commands with the computer's settings, which, as secrets are among
// them, are not in the process's arguments. There is no terminal.
func (c *computer) bash(t *testing.T, commands string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := c.Command(ctx, "bash", "-s")
	cmd.Stdin = strings.NewReader(c.script(commands))
	cmd.WaitDelay = 5 * time.Second
	start := time.Now()
	out, err := cmd.CombinedOutput()
	r := result{said: string(out), took: time.Since(start)}
	noteSaid(r.said)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		r.code = exit.ExitCode()
	} else {
		require.NoError(t, err)
	}
	return r
}

// script is commands with the computer's settings before them.
func (c *computer) script(commands string) string {
	var script strings.Builder
	for name, value := range c.env {
		fmt.Fprintf(&script, "export %s='%s'\n", name, value)
	}
	fmt.Fprintf(&script, "set -o pipefail\n%s\n", commands)
	return script.String()
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
	r := c.bash(t, `find /etc /usr /opt /root /var/lib /var/tmp`+tmp+` -xdev \( -path /var/lib/systemd -o -path /var/lib/apt -o -path /var/lib/dpkg -o -path '/var/lib/rancher/*' -o -path '/tmp/systemd-private*' -o -path /var/lib/pipeops-install \) -prune -o -printf '`+format+`' | sort`)
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

func lastWord(text string) string {
	words := strings.Fields(text)
	return words[len(words)-1]
}
