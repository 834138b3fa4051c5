package access

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
)

func kubeEntryOf(name string) kubeEntry {
	return kubeEntry{
		name: name, namespace: "production", address: "cp.example.com:8444", serverName: "kubernetes.a1.agents.example.com",
		ca: "-----BEGIN CERTIFICATE-----\n", program: "/usr/bin/pipeops-runner", credentials: "/home/ci/runner.json",
	}
}

// TestKubeconfig_Entries reads what was written with kubectl's own library.
func TestKubeconfig_Entries(t *testing.T) {
	config := kubeconfig{}
	require.NoError(t, config.add(kubeEntryOf("pipeops-shop"), false))
	text, err := config.encode()
	require.NoError(t, err)
	read, err := clientcmd.Load(text)
	require.NoError(t, err)
	require.NoError(t, clientcmd.Validate(*read))
	cluster, user := read.Clusters["pipeops-shop"], read.AuthInfos["pipeops-shop"]
	assert.Equal(t, "https://cp.example.com:8444", cluster.Server)
	assert.Equal(t, "kubernetes.a1.agents.example.com", cluster.TLSServerName)
	assert.Equal(t, "-----BEGIN CERTIFICATE-----\n", string(cluster.CertificateAuthorityData))
	assert.Equal(t, []string{"kube-credential", "--credentials", "/home/ci/runner.json"}, user.Exec.Args)
	assert.Equal(t, "pipeops-shop", read.CurrentContext)
	assert.Equal(t, "production", read.Contexts["pipeops-shop"].Namespace)
	assert.NotContains(t, string(text), "PRIVATE KEY")
	assert.NotContains(t, string(text), base64.StdEncoding.EncodeToString([]byte("PRIVATE KEY"))[:12])
}

// TestKubeconfig_KeepsOtherEntries adds to a file that is somebody's.
func TestKubeconfig_KeepsOtherEntries(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	link := file + "-link"
	require.NoError(t, os.Symlink(file, link))
	theirs := "kind: Config\napiVersion: v1\ncurrent-context: theirs\nusers: [{name: theirs, user: {token: abc}}]\n" +
		"clusters: [{name: theirs, cluster: {server: https://k.example.com}}]\ncontexts: [{name: theirs, context: {cluster: theirs, user: theirs}}]\n"
	require.NoError(t, os.WriteFile(file, []byte(theirs), 0o644))
	for _, use := range []bool{false, true} {
		for range 2 { // a second time it takes its own place
			config, err := readKubeconfig(link)
			require.NoError(t, err)
			require.NoError(t, config.add(kubeEntryOf("ours"), use))
			text, err := config.encode()
			require.NoError(t, err)
			require.NoError(t, replaceFile(link, text))
		}
		read, err := clientcmd.LoadFromFile(file)
		require.NoError(t, err)
		assert.Equal(t, map[bool]string{false: "theirs", true: "ours"}[use], read.CurrentContext)
		assert.Equal(t, "abc", read.AuthInfos["theirs"].Token)
		assert.Len(t, read.Contexts, 2)
		assert.Len(t, read.Clusters, 2)
	}
	info, err := os.Lstat(link)
	require.NoError(t, err)
	assert.NotZero(t, info.Mode()&os.ModeSymlink)
	info, err = os.Stat(file)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

func TestKubeconfig_RefusesOtherFile(t *testing.T) {
	for _, text := range []string{"kind: Pod\n", "a: b\n", "- a\n", "kind: Config\nusers: {a: b}\n"} {
		config, err := parseKubeconfig("file", []byte(text))
		if err == nil {
			err = config.add(kubeEntryOf("ours"), false)
		}
		require.Error(t, err, text)
	}
}

func FuzzParseKubeconfig(f *testing.F) {
	f.Add([]byte("kind: Config\nusers: [{name: a}]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		config, err := parseKubeconfig("file", text)
		if err != nil {
			return
		}
		if err := config.add(kubeEntryOf("ours"), true); err != nil {
			return
		}
		if _, err := config.encode(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestLastingPath_KeepsLink: a kubeconfig outlives the update of a program that is behind a link.
func TestLastingPath_KeepsLink(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	dir := t.TempDir()
	link := filepath.Join(dir, "pipeops-runner")
	require.NoError(t, os.Symlink(self, link))
	other := filepath.Join(t.TempDir(), "pipeops-runner")
	require.NoError(t, os.WriteFile(other, nil, 0o755))
	for _, c := range []struct{ path, called, want string }{
		{dir, "pipeops-runner", link},
		{dir, self + "/../pipeops-runner", link}, // called by another path, and in PATH
		{"/nowhere", link, link},
		{filepath.Dir(other), link, link}, // another program is in PATH
		{"/nowhere", "pipeops-runner", self},
	} {
		t.Setenv("PATH", c.path)
		got, err := lastingPath(c.called)
		require.NoError(t, err)
		assert.Equal(t, c.want, got, c)
	}
}
