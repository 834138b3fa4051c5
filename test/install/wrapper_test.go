package install

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// handedOver stands in for install.sh: what it is called with is what is tested.
const handedOver = "echo \"handed over: $* [$NODE_TYPE $K3S_URL $K3S_TOKEN]\"\n"

// TestInstall_SmallScripts runs them without install.sh beside them, so that they get
// it: from a site whose CA nobody knows, or from a bundle.
func TestInstall_SmallScripts(t *testing.T) {
	site, err := newSite("127.0.0.1")
	require.NoError(t, err)
	t.Cleanup(site.Close)
	site.put(releases+"dev/", "SHA256SUMS", map[string][]byte{"install.sh": []byte(handedOver)})
	dir := t.TempDir()
	sum := fmt.Sprintf("%x  install.sh\n", sha256.Sum256([]byte(handedOver)))
	for name, content := range map[string]string{
		"ca.pem": string(site.ca), "bundle/install.sh": handedOver, "bundle/SHA256SUMS": sum,
		"changed/install.sh": handedOver + "#", "changed/SHA256SUMS": sum, "empty/": there,
		"join-worker.sh": string(read(t, "../../scripts/join-worker.sh")), "uninstall.sh": string(read(t, "../../scripts/uninstall.sh")),
	} {
		add(t, dir, name, content)
	}
	run := func(t *testing.T, settings []string, args ...string) (said string, code int) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "bash", args...)
		cmd.Dir, cmd.Env = dir, append([]string{"PATH=" + os.Getenv("PATH"), "NO_PROXY=127.0.0.1", "NODE_TYPE=", "K3S_URL=", "K3S_TOKEN="}, settings...)
		return outcome(t, cmd)
	}
	mirror, ca := "PIPEOPS_MIRROR="+site.URL+"/", "PIPEOPS_CA_FILE="+filepath.Join(dir, "ca.pem")
	for name, c := range map[string]struct {
		settings []string
		code     int
		says     string
	}{
		"with the CA":                {[]string{mirror, ca}, 0, ""},
		"without the CA":             {[]string{mirror}, 5, "set PIPEOPS_CA_FILE"},
		"a CA that is not there":     {[]string{mirror, "PIPEOPS_CA_FILE=/no/ca.pem"}, 5, "PIPEOPS_CA_FILE=/no/ca.pem cannot be read"},
		"from a bundle":              {[]string{"PIPEOPS_BUNDLE=bundle"}, 0, ""},
		"from a bundle that changed": {[]string{"PIPEOPS_BUNDLE=changed"}, 6, "not what its publisher made"},
		"from a folder without one":  {[]string{"PIPEOPS_BUNDLE=empty"}, 5, "the bundle empty has no install.sh"},
	} {
		t.Run(name, func(t *testing.T) {
			for call, args := range map[string][]string{
				"install [agent https://10.0.0.1:6443 secret]": {"join-worker.sh", "10.0.0.1", "secret"},
				"uninstall --yes [  ]":                         {"uninstall.sh", "--yes"},
			} {
				said, code := run(t, c.settings, args...)
				assert.Equal(t, c.code, code, said)
				assert.Contains(t, said, c.says)
				if c.code == 0 {
					assert.Equal(t, "handed over: "+call+"\n", said)
				}
			}
		})
	}
	t.Run("piped in a folder of somebody else's", func(t *testing.T) {
		for name, text := range map[string]string{"join-worker.sh": "10.0.0.1 secret", "uninstall.sh": "--yes"} {
			for _, own := range []string{"install.sh", "main", "bash"} {
				add(t, dir, "theirs/"+own, "# Made from scripts/install/*.sh by somebody\necho PWNED\n")
			}
			call := "bash -s -- " + text + " <../" + name
			said, code := run(t, []string{"PIPEOPS_BUNDLE=../bundle"}, "-c", "cd theirs && "+call)
			assert.Zero(t, code, said)
			assert.Contains(t, said, "handed over: ")
			said, code = run(t, []string{"PIPEOPS_BUNDLE=../bundle"}, "-c", "cd theirs && bash -c \"$(cat ../"+name+")\" main "+text)
			assert.Zero(t, code, said)
			assert.NotContains(t, said, "PWNED")
		}
	})
	t.Run("of another version", func(t *testing.T) {
		stamped := strings.Replace(string(read(t, "../../scripts/uninstall.sh")), `RELEASE_INSTALL_SHA256=""`, `RELEASE_INSTALL_SHA256="`+sum[:64]+`"`, 1)
		add(t, dir, "stamped.sh", stamped)
		said, code := run(t, []string{mirror, ca, "PIPEOPS_VERSION=v9.9.9"}, "stamped.sh")
		assert.Equal(t, 6, code, said)
		assert.Contains(t, said, "knows install.sh of dev alone, not of v9.9.9")
		said, code = run(t, []string{mirror, ca}, "stamped.sh")
		assert.Zero(t, code, said)
	})
	t.Run("a page instead of it", func(t *testing.T) {
		defer site.fault(releases+"dev/install.sh", other)()
		said, code := run(t, []string{mirror, ca}, "uninstall.sh")
		assert.Equal(t, 6, code, said)
	})
}
