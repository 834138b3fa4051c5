package main

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	oldK3s = "v1.36.2+k3s1"
	newK3s = "v1.36.4+k3s1"
)

// node is a machine with a fake k3s, below a folder.
type node struct {
	dir  string
	role string
	env  []string
}

// newNode sets up a machine called "here" that runs oldK3s; others are further nodes of its
// cluster.
func newNode(t *testing.T, role string, others ...string) *node {
	t.Helper()
	n := &node{dir: t.TempDir(), role: role}
	for _, dir := range []string{"nodes", "bin", "site", "state"} {
		require.NoError(t, os.Mkdir(filepath.Join(n.dir, dir), 0o700))
	}
	n.write(t, "bin/k3s", fakeK3s(t, oldK3s))
	n.write(t, "site/k3s", fakeK3s(t, newK3s))
	n.write(t, "nodes/here", oldK3s+" True no\n")
	n.write(t, "server", newK3s)
	for _, name := range others {
		n.write(t, "nodes/"+name, oldK3s+" True no\n")
	}
	sum := sha256.Sum256([]byte(fakeK3s(t, newK3s)))
	n.env = []string{"FAKE=" + n.dir, "PIPEOPS_INSTALL_STATE=" + filepath.Join(n.dir, "state"), "PIPEOPS_WAIT=2", "PIPEOPS_K3S_SHA256=" + hex.EncodeToString(sum[:])}
	return n
}

func fakeK3s(t *testing.T, version string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/fake-k3s.sh")
	require.NoError(t, err)
	return strings.Replace(string(text), "version=VERSION", "version="+version, 1)
}

func (n *node) write(t *testing.T, name, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(n.dir, name), []byte(text), 0o700))
}

func (n *node) read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(n.dir, name))
	if !os.IsNotExist(err) {
		require.NoError(t, err)
	}
	return string(text)
}

// upgrade runs the command. The fake of systemctl has the node report the installed version, but
// for one that the file "broken" names.
func (n *node) upgrade(t *testing.T, env ...string) (said string, code int) {
	t.Helper()
	return bash(t, `
bin_dir="$FAKE/bin" dry_run="${DRY_RUN:-no}"
hostname() { echo Here; }
facts_collect() { facts=([K3S_OURS]=`+n.role+` [ROOT]=${FAKE_ROOT:-yes} [INIT]=${FAKE_INIT:-systemd} [ARCH]=amd64 [SELINUX]=no); }
state_open() { tmp_dir="$STATE_DIR/tmp"; mkdir -p "$tmp_dir" "$STATE_DIR/backups"; }
fetch() { cp "$FAKE/site/${1##*/}" "$2"; }
systemctl() {
  local version kubelet ready unschedulable
  echo "systemctl $*" >>"$FAKE/calls"
  version="$(k3s_installed)"
  read -r kubelet ready unschedulable <"$FAKE/nodes/here"
  ready=True
  [[ ! -e $FAKE/broken || $(<"$FAKE/broken") != *"$version"* ]] || ready=Unknown
  echo "$version $ready $unschedulable" >"$FAKE/nodes/here"
}
rc-service() { systemctl "$2" "$1"; }
timeout() { shift; "$@"; }
command_upgrade_kubernetes`, append(n.env, env...)...)
}

// upgraded is upgrade where that succeeds.
func (n *node) upgraded(t *testing.T, env ...string) (said string) {
	t.Helper()
	said, code := n.upgrade(t, env...)
	require.Zero(t, code, said)
	return said
}

func TestUpgradeKubernetes(t *testing.T) {
	n := newNode(t, "server", "worker-1", "worker-2")
	n.write(t, "nodes/worker-2", newK3s+" True no\n")
	said := n.upgraded(t)
	assert.Contains(t, said, "==> k3s "+oldK3s+" to "+newK3s+" as server")
	assert.Contains(t, said, "==> here runs k3s "+newK3s)
	assert.Equal(t, newK3s+" True no\n", n.read(t, "nodes/here"), "it takes pods again")
	calls := n.read(t, "calls")
	drained, restarted, undone := strings.Index(calls, "drain here --ignore-daemonsets --delete-emptydir-data --timeout 2s"), strings.Index(calls, "systemctl restart k3s"), strings.Index(calls, "uncordon here")
	assert.True(t, 0 <= drained && drained < restarted && restarted < undone, calls)
	assert.Contains(t, said, "worker-1 runs k3s "+oldK3s)
	assert.Regexp(t, `here: +\S+/k3s kubectl .* drain worker-1 .*--timeout 2s`, said)
	assert.Regexp(t, `on worker-1: +sudo bash install.sh upgrade --kubernetes`, said)
	assert.NotContains(t, said, "worker-2", "it has that version")
	assert.NoFileExists(t, filepath.Join(n.dir, "state/k3s.previous"))

	n.write(t, "calls", "")
	said = n.upgraded(t)
	assert.Contains(t, said, "it is that already")
	assert.Contains(t, said, "worker-1 runs k3s", "what is left to do is said again")
	assert.NotContains(t, n.read(t, "calls"), "restart")
}

// TestUpgradeKubernetes_OnlyNode is of OpenRC, with a fake of rc-service, too.
func TestUpgradeKubernetes_OnlyNode(t *testing.T) {
	for _, env := range []string{"FAKE_INIT=systemd", "FAKE_INIT=openrc"} {
		n := newNode(t, "server")
		said := n.upgraded(t, env)
		assert.Contains(t, said, "here is the only node: its pods keep running")
		assert.NotContains(t, n.read(t, "calls"), "drain")
		assert.NotContains(t, said, "next, the other nodes")
		assert.Contains(t, n.read(t, "calls"), "systemctl restart k3s\n")
		assert.Equal(t, newK3s+" True no\n", n.read(t, "nodes/here"))
	}
}

func TestUpgradeKubernetes_Worker(t *testing.T) {
	n := newNode(t, "agent", "server")
	n.write(t, "server", oldK3s)
	said, code := n.upgrade(t)
	assert.Equal(t, 8, code, said)
	assert.Contains(t, said, "the server runs "+oldK3s+", which is older than "+newK3s)
	assert.NotContains(t, n.read(t, "calls"), "restart")

	n.write(t, "server", newK3s)
	said = n.upgraded(t)
	assert.Contains(t, said, "note: here is not drained")
	assert.Contains(t, n.read(t, "calls"), "systemctl restart k3s-agent")
	assert.Equal(t, newK3s+" True no\n", n.read(t, "nodes/here"))

	drained := newNode(t, "agent", "server")
	drained.write(t, "nodes/here", oldK3s+" True yes\n")
	said, code = drained.upgrade(t)
	require.Zero(t, code, said)
	assert.NotContains(t, said, "not drained")
	assert.Equal(t, newK3s+" True yes\n", drained.read(t, "nodes/here"), "the operator uncordons it from the server")
}

func TestUpgradeKubernetes_RollsBack(t *testing.T) {
	n := newNode(t, "server", "worker-1")
	n.write(t, "broken", newK3s)
	said, code := n.upgrade(t)
	assert.Equal(t, 7, code, said)
	assert.Contains(t, said, "the node was not ready after 2 s: going back to "+oldK3s)
	assert.Contains(t, said, "k3s "+newK3s+" did not become ready; "+oldK3s+" runs again")
	assert.Equal(t, fakeK3s(t, oldK3s), n.read(t, "bin/k3s"))
	assert.Equal(t, 2, strings.Count(n.read(t, "calls"), "systemctl restart k3s"))
	assert.Equal(t, oldK3s+" True no\n", n.read(t, "nodes/here"))

	n = newNode(t, "server", "worker-1")
	n.write(t, "broken", newK3s+" "+oldK3s)
	said, code = n.upgrade(t)
	assert.Equal(t, 7, code, said)
	assert.Contains(t, said, "neither k3s "+newK3s+" nor "+oldK3s+" became ready")
}

func TestUpgradeKubernetes_Refuses(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(*node)
		env     string
		code    int
		says    string
	}{
		"pods that stay":        {func(n *node) { n.write(t, "undrainable", "") }, "", 7, "here could not be drained, so nothing was upgraded"},
		"another program":       {func(n *node) { n.write(t, "site/k3s", "other") }, "", 6, "is not what its publisher made"},
		"another program, ours": {func(*node) {}, "PIPEOPS_K3S_SHA256=", 6, "is not what its publisher made"},
		"an older version":      {func(n *node) { n.write(t, "bin/k3s", fakeK3s(t, "v1.36.5+k3s1")) }, "", 8, "upgrade does not go back"},
		"another minor version": {func(n *node) { n.write(t, "bin/k3s", fakeK3s(t, "v1.35.9+k3s1")) }, "", 8, "name a patch of this one: K3S_VERSION=v1.35.PATCH+k3s1"},
		"no version":            {func(*node) {}, "K3S_VERSION=newest", 2, "K3S_VERSION=newest is no version of k3s"},
		"k3s of others":         {func(n *node) { n.role = "no" }, "", 8, "has not set up k3s here"},
		"an ordinary user":      {func(*node) {}, "FAKE_ROOT=no", 3, "root is needed to upgrade k3s"},
		"another name":          {func(n *node) { require.NoError(t, os.Remove(filepath.Join(n.dir, "nodes/here"))) }, "", 7, "the cluster has no node here"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "server", "worker-1")
			c.prepare(n)
			before := n.read(t, "bin/k3s")
			said, code := n.upgrade(t, c.env)
			assert.Equal(t, c.code, code, said)
			assert.Contains(t, said, c.says)
			assert.NotContains(t, n.read(t, "calls"), "restart")
			assert.Equal(t, before, n.read(t, "bin/k3s"), "it is not replaced")
			assert.NotContains(t, n.read(t, "nodes/here"), "yes", "it takes pods")
		})
	}
}

// TestUpgradeKubernetes_Resumes a run that was killed: it undoes its own cordon, but not an
// operator's.
func TestUpgradeKubernetes_Resumes(t *testing.T) {
	for cordoned, want := range map[string]string{"state/k3s.cordoned": "no", "of-the-operator": "yes"} {
		n := newNode(t, "server", "worker-1")
		n.write(t, cordoned, "")
		n.write(t, "nodes/here", oldK3s+" True yes\n")
		n.upgraded(t)
		assert.Equal(t, newK3s+" True "+want+"\n", n.read(t, "nodes/here"))
	}
}

func TestUpgradeKubernetes_DryRun(t *testing.T) {
	n := newNode(t, "server", "worker-1")
	said := n.upgraded(t, "DRY_RUN=yes")
	assert.Contains(t, said, "would download k3s, drain the node")
	assert.NotContains(t, n.read(t, "calls"), "drain ")
	assert.Equal(t, fakeK3s(t, oldK3s), n.read(t, "bin/k3s"))
}

// TestK3sNumber sorts k3s's own builds, too.
func TestK3sNumber(t *testing.T) {
	said := bashOK(t, `
for version in v1.9.9+k3s9 v1.36.2+k3s1 v1.36.2+k3s2 v1.36.10+k3s1 v1.36.10-rc1+k3s1 v1.36.10; do
  if k3s_number "$version"; then echo "$REPLY"; else echo none; fi
done`)
	assert.Equal(t, "1009009009\n1036002001\n1036002002\n1036010001\nnone\nnone\n", said)
}
