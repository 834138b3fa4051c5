package main

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// unpinned are files of pinned versions whose checksum nobody has filled in yet.
var unpinned = map[string]bool{"minikube-linux-arm64": true}

// TestPinned_HaveChecksums for each platform that the installer supports.
func TestPinned_HaveChecksums(t *testing.T) {
	names := []string{"k3s-install.sh", "k3s-linux-amd64", "k3s-linux-arm64", "k3s-airgap-images-amd64", "k3s-airgap-images-arm64"}
	for _, tool := range []string{"k3d", "kind", "minikube", "kubectl"} {
		for _, machine := range []string{"linux-amd64", "linux-arm64", "darwin-amd64", "darwin-arm64"} {
			names = append(names, tool+"-"+machine)
		}
	}
	known := map[string]string{}
	for _, name := range names {
		said := bashOK(t, "pinned_sum "+name)
		if unpinned[name] {
			assert.Empty(t, said, "%s has a checksum now: take it out of unpinned", name)
			continue
		}
		assert.Regexp(t, `^[0-9a-f]{64}\n$`, said, name)
		assert.Empty(t, known[said], "%s has the checksum of another file", name)
		known[said] = name
	}
	said := bashOK(t, "k3s_pinned k3s-linux-amd64; K3S_VERSION=v1.0.0+k3s1; k3s_pinned k3s-linux-amd64")
	assert.Equal(t, "k3s-linux-amd64\n", said, "no version but the script's own")
	said = bashOK(t, `printf '%s\n' "${unpinned[@]}"`)
	assert.ElementsMatch(t, slices.Collect(maps.Keys(unpinned)), strings.Fields(said), "no other file goes by its site's list alone")
}

// TestPinned_Verified has sites that replace a program together with its
// list of checksums.
func TestPinned_Verified(t *testing.T) {
	const right, changed = "the program", "another program"
	sum := func(of string) string {
		digest := sha256.Sum256([]byte(of))
		return hex.EncodeToString(digest[:])
	}
	for name, c := range map[string]struct {
		content, pinned, list string
		env                   []string
		code                  int
		says                  string
	}{
		"as pinned":                            {right, "tool", "", nil, 0, right},
		"changed, with its list":               {changed, "tool", sum(changed) + "  tool", nil, 6, "tool is not what its publisher made"},
		"the user's own":                       {changed, "tool", "", []string{"PIPEOPS_K3D_SHA256=" + sum(changed)}, 0, changed},
		"not the user's own":                   {right, "tool", "", []string{"PIPEOPS_K3D_SHA256=" + sum(changed)}, 6, "is not what"},
		"none is known":                        {right, "unknown", sum(right) + "  tool", nil, 6, "has no checksum for unknown"},
		"none is known yet":                    {right, "minikube-linux-arm64", sum(right), nil, 0, "its own site alone; PIPEOPS_K3D_SHA256 sets yours"},
		"none is known, and that is allowed":   {right, "unknown", sum(right), []string{"PIPEOPS_ALLOW_UNSIGNED=yes"}, 0, "its own site alone"},
		"the user's version":                   {right, "", sum(right) + "  dist/tool", nil, 0, "its own site alone; PIPEOPS_K3D_SHA256 sets yours"},
		"the user's version, changed":          {changed, "", sum(right) + "  tool", nil, 6, "is not what its publisher made"},
		"the user's version, and a proxy page": {right, "", "<html>Please log in</html>", nil, 6, "there is no checksum for tool"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "tool"), []byte(c.content), 0o600))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "sums"), []byte(c.list+"\n"), 0o600))
			said, code := bash(t, `
fetch() { cp "$SITE/${1##*/}" "$2"; }
pinned_sum() { if [[ $1 == tool ]]; then echo `+sum(right)+`; fi; }
fetch_pinned https://site/tool "$tmp_dir/tool" https://site/sums tool PIPEOPS_K3D_SHA256 "`+c.pinned+`"
cat "$tmp_dir/tool"`, append(c.env, "SITE="+dir, "PIPEOPS_INSTALL_STATE="+dir)...)
			assert.Equal(t, c.code, code, said)
			assert.Contains(t, said, c.says)
			assert.Equal(t, c.code == 0, strings.Contains(said, c.content), "a program that is not right is not used: %s", said)
		})
	}
}

// TestPinned_RefusesInvalidChecksum before anything is changed.
func TestPinned_RefusesInvalidChecksum(t *testing.T) {
	said, code := bash(t, "agent_token_kept() { return 0; }; settings_check", "PIPEOPS_KIND_SHA256=deadbeef", "CLUSTER_NAME=a",
		"PIPEOPS_CONTROL_PLANE_URL=https://cp.example.com")
	assert.Equal(t, 2, code, said)
	assert.Contains(t, said, "PIPEOPS_KIND_SHA256=deadbeef: is to be a SHA-256")
}
