package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOlder(t *testing.T) {
	for pair, want := range map[string]bool{
		"v1.2.3 v1.2.3": false, "v1.2.3 v1.2.4": true, "v1.2.4 v1.2.3": false, "v1.9.0 v1.10.0": true, "v1.10.0 v1.9.0": false,
		"v2.0.0 v1.9.9": false, "v1.2.3-rc.1 v1.2.3": true, "v1.2.3 v1.2.3-rc.1": false, "v1.2.3-rc.1 v1.2.3-rc.2": true,
		"v1.2.3-rc.1 v1.2.2": false, "v1.08.0 v1.9.0": true,
	} {
		said := bashOK(t, "older "+pair+" && echo yes || echo no")
		assert.Equal(t, map[bool]string{true: "yes\n", false: "no\n"}[want], said, pair)
	}
}

// TestUpgrade_InstalledVersion is read from the applied manifest if the cluster does not report it.
func TestUpgrade_InstalledVersion(t *testing.T) {
	for image, want := range map[string]string{
		"pipeops/agent:v1.2.2@sha256:e3b0c442":           "the newest version is v1.2.3, installed is v1.2.2\n    upgrades\n",
		"registry.example.com:5000/pipeops/agent:v1.2.2": "the newest version is v1.2.3, installed is v1.2.2\n    upgrades\n",
		"pipeops/agent:v1.2.3-rc.1@sha256:e3b0c442":      "the newest version is v1.2.3, installed is v1.2.3-rc.1\n    upgrades\n",
		"pipeops/agent:v1.2.4":                           "the newest version is v1.2.3, installed is v1.2.4\n    that is older: name it to go back to it (--version v1.2.3)\n",
		"pipeops/agent:dev":                              "the newest version is v1.2.3, installed is unknown\n    upgrades\n",
		"pipeops/agent@sha256:e3b0c442":                  "the newest version is v1.2.3, installed is unknown\n    upgrades\n",
		"pipeops/agent:v1":                               "the newest version is v1.2.3, installed is unknown\n    upgrades\n",
	} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "agent.yaml"), []byte("spec:\n      - name: agent\n        image: "+image+"\n"), 0o600))
		said := bashOK(t, `
kube=(false)
newest_version() { PIPEOPS_VERSION=v1.2.3; }
if upgrade_choose; then say "    upgrades"; fi`, "PIPEOPS_INSTALL_STATE="+dir)
		assert.Equal(t, "    "+want, said, image)
	}
}

// TestUpgrade_AfterSelfUpdate has the cluster run another version than what was applied.
func TestUpgrade_AfterSelfUpdate(t *testing.T) {
	const note = `{"state":"done","offer":"o","from":"v1.2.2","to":"v1.3.0","fromImage":"pipeops/agent:v1.2.2","toImage":"pipeops/agent@sha256:e3b0c442"}`
	for name, c := range map[string]struct{ image, note, want string }{
		"has updated itself": {"pipeops/agent@sha256:e3b0c442", note, "v1.3.0\n    that is older: name it to go back to it (--version v1.2.3)\n"},
		"has gone back":      {"pipeops/agent:v1.2.2", note, "v1.2.2\n    upgrades\n"},
		"never has":          {"pipeops/agent:v1.2.1@sha256:e3b0c442", "<no value>", "v1.2.1\n    upgrades\n"},
		"by another's hand":  {"pipeops/agent@sha256:00000000", note, "unknown\n    upgrades\n"},
	} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "agent.yaml"), []byte("        image: pipeops/agent:v1.2.0\n"), 0o600))
		said := bashOK(t, `
running() { printf '%s\n%s' "$IMAGE" "$NOTE"; }
kube=(running)
newest_version() { PIPEOPS_VERSION=v1.2.3; }
if upgrade_choose; then say "    upgrades"; fi`, "PIPEOPS_INSTALL_STATE="+dir, "IMAGE="+c.image, "NOTE="+c.note)
		assert.Equal(t, "    the newest version is v1.2.3, installed is "+c.want, said, name)
	}
}

func TestNewestVersion(t *testing.T) {
	for content, want := range map[string]int{
		"v1.2.3\n": 0, "v1.2.3": 0, "v1.2.3-rc.1\n": 0, "<html>\n": 5, "": 5, "v1.2.3/../..\n": 5, "v1.2.3 $(id)\n": 5, "1.2.3\n": 5, "v1.2.3\nv9.9.9\n": 0,
	} {
		file := filepath.Join(t.TempDir(), "version.txt")
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
		said, code := bash(t, `
fetch() { cp "$FILE" "$2"; }
newest_version
echo "[$PIPEOPS_VERSION]"`, "FILE="+file)
		assert.Equal(t, want, code, "%q: %s", content, said)
	}
}
