package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/image"
	published "github.com/pipeops/pipeops-vm-agent/internal/release"
	"github.com/pipeops/pipeops-vm-agent/test/inputs"
	"github.com/pipeops/pipeops-vm-agent/test/programs"
	"github.com/pipeops/pipeops-vm-agent/test/releasetest"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

var stamp = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// testKey is one of internal/release's.
const (
	testKey    = "../../internal/release/testdata/plain.key"
	testPublic = "RWSwUuJ+jZW/1R+0bEXcj9CjMNzu/WVTjxp05XjT1k5Q0YanY4YmN0E2"
)

// small makes a signed release from a repository in root, with a program in the
// agent's place that compiles in no time.
func small(t *testing.T, root string) string {
	t.Helper()
	var out bytes.Buffer
	r := release{
		version: "v1.2.3", commit: "abc", root: root, dir: filepath.Join(t.TempDir(), "v1.2.3"),
		programs:  []program{{name: "pipeops-agent", pkg: "./test/apps/pause", image: agentImage, updates: true, trusts: true}},
		files:     []string{"LICENSE", "deployments"},
		platforms: []v1.Platform{{OS: "linux", Architecture: "amd64"}, {OS: "linux", Architecture: "arm64"}},
		time:      stamp, expires: stamp.Add(validity), out: &out,
	}
	pause := programs.Program{Package: "./test/apps/pause"}
	require.NoError(t, errors.Join(pause.Depend(t.Context()), inputs.Depend("LICENSE", "deployments", "scripts/install", "internal/tools/nfpm")))
	require.NoError(t, r.keys(testKey, "", ""))
	require.NoError(t, r.make(t.Context()), out.String())
	return r.dir
}

// elsewhere copies the repository's files to another folder, without git.
func elsewhere(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"go.mod", "go.sum", "LICENSE", "deployments", "internal/release", "internal/tools/nfpm", "scripts/install", "test/apps"} {
		from, into := filepath.Join("../..", name), filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(into), 0o755))
		if info, err := os.Stat(from); err == nil && !info.IsDir() {
			content, err := os.ReadFile(from)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(into, content, 0o600))
			continue
		}
		require.NoError(t, os.CopyFS(into, os.DirFS(from)))
	}
	return dir
}

func read(t *testing.T, dir, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, name))
	require.NoError(t, err)
	return content
}

// TestRelease_Reproducible in different folders, with git and without.
func TestRelease_Reproducible(t *testing.T) {
	suite.Release(t, "two builds of a whole release")
	first, second := small(t, "../.."), small(t, elsewhere(t))
	sums := string(read(t, first, "SHA256SUMS"))
	assert.Equal(t, sums, string(read(t, second, "SHA256SUMS")))
	assert.Equal(t, read(t, first, "SHA256SUMS.minisig"), read(t, second, "SHA256SUMS.minisig"))
	published, err := os.ReadDir(first)
	require.NoError(t, err)
	for _, p := range published {
		if !strings.HasPrefix(p.Name(), "SHA256SUMS") && p.Name() != "release.json.minisig" {
			assert.Contains(t, sums, "  "+p.Name()+"\n")
		}
	}
	check := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "SHA256SUMS")
	check.Dir = first
	said, err := check.CombinedOutput()
	require.NoError(t, err, "%s", said)

	t.Run("the manifest", func(t *testing.T) { manifestIsTrue(t, first) })
	t.Run("the provenance", func(t *testing.T) {
		statement, _ := readProvenance(t, first)
		subjectsAreTheFiles(t, first, statement)
	})
	t.Run("what is pinned", func(t *testing.T) { versionIsPinned(t, first) })
	t.Run("checked as the guide says", func(t *testing.T) { checksOfTheGuide(t, first) })
	t.Run("the chart", func(t *testing.T) { chartIsWhatHelmPacks(t, first) })
	t.Run("the packages", func(t *testing.T) { packagesAreWhole(t, first) })
	t.Run("the formulas", func(t *testing.T) { formulasNameTheArchives(t, first) })
	t.Run("the archive", func(t *testing.T) { archiveIsWhole(t, first) })
}

func manifestIsTrue(t *testing.T, dir string) {
	m, err := releasetest.TrustIn(t, 1, testPublic).Open(read(t, dir, "release.json"), read(t, dir, "release.json.minisig"))
	require.NoError(t, err)
	assert.Equal(t, "v1.2.3", m.Version)
	assert.Equal(t, stamp.Add(validity), m.Expires)
	assert.Equal(t, "v1.2.3\n", string(read(t, dir, "version.txt")))
	agent, found := m.File(published.KindAgent, "linux", "arm64")
	require.True(t, found)
	program := read(t, dir, agent.Name)
	assert.Equal(t, agent.SHA256, fmt.Sprintf("%x", sha256.Sum256(program)))
	assert.EqualValues(t, agent.Size, len(program))
	assert.Equal(t, string(program), string(untar(t, filepath.Join(dir, "pipeops_1.2.3_linux_arm64.tar.gz"))["pipeops_1.2.3_linux_arm64/pipeops-agent"]))

	archive, err := image.Open(filepath.Join(dir, "pipeops-agent-image_1.2.3.tar"))
	require.NoError(t, err)
	defer func() { require.NoError(t, archive.Close()) }()
	digest, err := archive.Images[0].Index.Digest()
	require.NoError(t, err)
	img, found := m.Image("pipeops/agent")
	require.True(t, found)
	assert.Equal(t, digest.String(), img.Digest)
	bom := string(read(t, dir, "pipeops-agent_1.2.3.cdx.json"))
	assert.Contains(t, bom, `"purl": "pkg:golang/std@1.`)
}

func versionIsPinned(t *testing.T, dir string) {
	m, err := releasetest.TrustIn(t, 1, testPublic).Open(read(t, dir, "release.json"), read(t, dir, "release.json.minisig"))
	require.NoError(t, err)
	assert.Contains(t, string(read(t, dir, "agent.yaml")), "image: pipeops/agent:v1.2.3@"+m.Images[0].Digest+"\n")
	script, _ := m.Named("install.sh")
	manifest, _ := m.Named("agent.yaml")
	install := string(read(t, dir, "install.sh"))
	programs, found := m.Named("pipeops_1.2.3_linux_amd64.tar.gz")
	require.True(t, found)
	assert.Contains(t, install, "\nRELEASE_VERSION=\"v1.2.3\"\nRELEASE_SHA256SUMS=\""+manifest.SHA256+" agent.yaml,")
	assert.Contains(t, install, ","+programs.SHA256+" pipeops_1.2.3_linux_amd64.tar.gz")
	assert.Contains(t, install, "\"\nRELEASE_KEYS=\""+testPublic+"\"\n")
	for _, name := range []string{"join-worker.sh", "uninstall.sh", "install.ps1"} {
		assert.Contains(t, string(read(t, dir, name)), `"`+script.SHA256+`"`)
	}
}

func archiveIsWhole(t *testing.T, first string) {
	files := untar(t, filepath.Join(first, "pipeops_1.2.3_linux_arm64.tar.gz"))
	inside := func(name string) string { return string(files["pipeops_1.2.3_linux_arm64/deployments/"+name]) }
	assert.Equal(t, string(read(t, first, "agent.yaml")), inside("agent.yaml"))
	assert.Contains(t, inside("helm/pipeops-agent/Chart.yaml"), "\nversion: 1.2.3\nappVersion: v1.2.3\n")
	assert.Contains(t, inside("compose/compose.yaml"), "${PIPEOPS_VERSION:-v1.2.3}")
	modes := unpackTar(t, filepath.Join(first, "pipeops_1.2.3_linux_amd64.tar.gz"))
	assert.Equal(t, int64(0o755), modes["pipeops_1.2.3_linux_amd64/pipeops-agent"])
	assert.Equal(t, int64(0o755), modes["pipeops_1.2.3_linux_amd64/deployments/openrc/pipeops-agent"])
	assert.Equal(t, int64(0o644), modes["pipeops_1.2.3_linux_amd64/deployments/service.yaml"])
	for name := range modes {
		assert.False(t, strings.HasSuffix(name, ".go"), name)
	}
}

// unpackTar answers the modes of an archive's files.
func unpackTar(t *testing.T, file string) map[string]int64 {
	t.Helper()
	modes := map[string]int64{}
	eachIn(t, file, func(header *tar.Header, _ []byte) {
		assert.Equal(t, stamp, header.ModTime.UTC())
		modes[header.Name] = header.Mode
	})
	return modes
}

// untar answers the contents of an archive's files.
func untar(t *testing.T, file string) map[string][]byte {
	t.Helper()
	contents := map[string][]byte{}
	eachIn(t, file, func(header *tar.Header, content []byte) { contents[header.Name] = content })
	return contents
}

func eachIn(t *testing.T, file string, do func(*tar.Header, []byte)) {
	t.Helper()
	f, err := os.Open(file)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	uncompressed, err := gzip.NewReader(f)
	require.NoError(t, err)
	for archive := tar.NewReader(uncompressed); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
		content, err := io.ReadAll(archive)
		require.NoError(t, err)
		do(header, content)
	}
}

func TestZipped(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.exe")
	require.NoError(t, os.WriteFile(file, []byte("program"), 0o600))
	var first, second bytes.Buffer
	entries := []entry{{name: "a.exe", file: file, mode: 0o755}}
	require.NoError(t, zipped(&first, "top", entries, stamp))
	require.NoError(t, zipped(&second, "top", entries, stamp))
	assert.Equal(t, first.Bytes(), second.Bytes())
	archive, err := zip.NewReader(bytes.NewReader(first.Bytes()), int64(first.Len()))
	require.NoError(t, err)
	require.Len(t, archive.File, 1)
	assert.Equal(t, "top/a.exe", archive.File[0].Name)
}

func TestRelease_Refuses(t *testing.T) {
	refused := func(want string, args ...string) {
		t.Helper()
		cmd := newCommand()
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		cmd.SetArgs(append([]string{"--root", "../..", "--output", t.TempDir()}, args...))
		require.ErrorContains(t, cmd.ExecuteContext(t.Context()), want)
	}
	refused("is there already", "--version", "v1.0.0")
	refused("write it as oci://HOST/PATH", "--version", "v1.0.0", "--chart-registry", "https://registry.example.com")
	refused("OS/ARCHITECTURE", "--version", "v1.0.0", "--platform", "linux")
	refused("vMAJOR.MINOR.PATCH", "--version", "1.0.0")
	refused("--sign: open", "--version", "v1.0.0", "--sign", "no-such.key")
	refused("--expires soon", "--version", "v1.0.0", "--expires", "soon")
	refused("would have expired at 2020", "--version", "v1.0.0", "--sign", testKey, "--expires", "2020-01-01T00:00:00Z")
	refused("--commit: none is not a full commit ID", "--version", "v1.0.0", "--sign", testKey)
	refused("no key file of minisign", "--version", "v1.0.0", "--sign", "main.go")
	refused("there is none, and the key file is encrypted", "--version", "v1.0.0", "--sign", "../../internal/release/testdata/encrypted.key")
	refused("--trust does not name the key that signs", "--version", "v1.0.0", "--sign", testKey,
		"--trust", "RWRsQbfKHf78jWA33Ao87W5k5CekBqJUOW6KYd2HPn13BBIXZ4we8pQT")
	refused(`release key "x"`, "--version", "v1.0.0", "--trust", "x")
}

func TestLdflags_StampsKeys(t *testing.T) {
	const next = "RWRsQbfKHf78jWA33Ao87W5k5CekBqJUOW6KYd2HPn13BBIXZ4we8pQT"
	r := release{version: "v1.2.3", commit: "abc"}
	agent, other := program{trusts: true}, program{}
	assert.NotContains(t, r.ldflags(agent), "releaseKeys")
	require.NoError(t, r.keys(testKey, "", testPublic+","+next))
	assert.Contains(t, r.ldflags(agent), " -X main.releaseKeys="+testPublic+","+next)
	assert.NotContains(t, r.ldflags(other), "releaseKeys")
}

// A change of a file's form must not be published unnoticed.
func TestReplaceOnce(t *testing.T) {
	_, err := replaceOnce([]byte("a: 1\n"), "b: 1", "b: 2")
	require.ErrorContains(t, err, "0 times")
	_, err = replaceOnce([]byte("a: 1\na: 1\n"), "a: 1", "a: 2")
	require.ErrorContains(t, err, "2 times")
}

func TestCABundle(t *testing.T) {
	r := release{staging: t.TempDir()}
	file, err := r.caBundle()
	require.NoError(t, err)
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(content))
	n := strings.Count(string(content), "BEGIN CERTIFICATE")
	assert.Greater(t, n, 100)
	t.Log(n, "certificate authorities")
}

func TestCommitted(t *testing.T) {
	dir := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false"}, args...)...)
		cmd.Dir = dir
		said, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", said)
	}
	require.NoError(t, committed(t.Context(), dir), "a copy without git")
	git("init", "--quiet")
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, []byte("1"), 0o600))
	git("add", "file")
	git("commit", "--quiet", "-m", "first")
	require.NoError(t, committed(t.Context(), dir))
	require.NoError(t, os.WriteFile(file, []byte("2"), 0o600))
	require.ErrorContains(t, committed(t.Context(), dir), "changes that are in no commit")
	git("commit", "--quiet", "-a", "-m", "second")
	require.NoError(t, committed(t.Context(), dir))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "cmd", "agent"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "cmd", "agent", "more.go"), []byte("package main"), 0o600))
	require.ErrorContains(t, committed(t.Context(), dir), "cmd/agent/more.go", "go would build it")

	at, err := commitTime(t.Context(), dir)
	require.NoError(t, err)
	assert.WithinDuration(t, time.Now(), at, time.Hour)
	t.Setenv("SOURCE_DATE_EPOCH", "1000000000")
	at, err = commitTime(t.Context(), dir)
	require.NoError(t, err)
	assert.Equal(t, int64(1000000000), at.Unix())
	t.Setenv("SOURCE_DATE_EPOCH", "today")
	_, err = commitTime(t.Context(), dir)
	require.ErrorContains(t, err, "SOURCE_DATE_EPOCH")
}
