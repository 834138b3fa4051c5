//go:build unix

package command

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/base"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// withTar is a world in which the App web has this machine's tar and files.
func withTar(t *testing.T) *world {
	t.Helper()
	w := withWeb(t)
	w.agent.Backend.Machine()
	return w
}

var long = time.Date(2023, 5, 6, 7, 8, 9, 0, time.UTC)

// site makes a small tree to copy.
func site(t *testing.T, at string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Join(at, "sub"), 0o750))
	require.NoError(t, os.WriteFile(filepath.Join(at, "sub", "page"), []byte("hello"), 0o640))
	require.NoError(t, os.WriteFile(filepath.Join(at, "run"), []byte("#!"), 0o755))
	require.NoError(t, os.Symlink("sub/page", filepath.Join(at, "index")))
	require.NoError(t, os.Chtimes(filepath.Join(at, "sub", "page"), long, long))
	require.NoError(t, os.Chtimes(filepath.Join(at, "sub"), long, long))
}

func isSite(t *testing.T, at string) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(at, "index"))
	require.NoError(t, err)
	assert.Equal(t, "hello", string(page))
	target, err := os.Readlink(filepath.Join(at, "index"))
	require.NoError(t, err)
	assert.Equal(t, "sub/page", target)
	for name, mode := range map[string]fs.FileMode{"sub": fs.ModeDir | 0o750, "sub/page": 0o640, "run": 0o755} {
		info, err := os.Stat(filepath.Join(at, name))
		require.NoError(t, err)
		assert.Equal(t, mode, info.Mode(), name)
		assert.Equal(t, name != "run", info.ModTime().Equal(long), name)
	}
}

func TestCopy_OutAndIn(t *testing.T) {
	t.Parallel()
	w := withTar(t)
	there, here := t.TempDir(), t.TempDir()
	site(t, filepath.Join(there, "site"))
	for _, c := range []struct{ source, destination, comesTo string }{
		{"web:" + there + "/site", here, here + "/site"},
		{"web:" + there + "/site/", here + "/named", here + "/named"},
		{"web:" + there + "/site/.", here, here + "/site"},
		{here + "/site", "web:" + there + "/back", there + "/back"},
		{here + "/site/", "web:" + there, there + "/site"},
		{here + "/named", "web:" + there + "/", there + "/named"},
	} {
		code, stdout, stderr := w.run(t, "cp", "shop", c.source, c.destination)
		require.Zero(t, code, "%v: %s", c, stderr)
		assert.Empty(t, stdout)
		assert.Contains(t, stderr, "copied 2 files, 3 directories and links, 7 bytes")
		isSite(t, c.comesTo)
	}
}

func TestCopy_StandardStreams(t *testing.T) {
	t.Parallel()
	w := withTar(t)
	there := t.TempDir()
	r := w.start(t, false, "typed", "cp", "shop", "-", "web:"+there+"/file")
	require.Zero(t, r.ended(t), r.err.String())
	code, stdout, stderr := w.run(t, "cp", "shop", "web:"+there+"/file", "-")
	assert.Equal(t, []any{0, "typed"}, []any{code, stdout}, stderr)
	code, _, stderr = w.run(t, "cp", "shop", "web:"+there, "-")
	assert.Equal(t, base.ExitFailure, code)
	assert.Contains(t, stderr, "is no file")
	r = w.start(t, false, "typed", "cp", "shop", "-", "web:"+there)
	assert.Equal(t, base.ExitUsage, r.ended(t))
}

func TestCopy_SkipsOutsideLinks(t *testing.T) {
	t.Parallel()
	w := withTar(t)
	there, here := t.TempDir(), t.TempDir()
	site(t, filepath.Join(there, "site"))
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(there, "site", "evil")))
	code, _, stderr := w.run(t, "cp", "shop", "web:"+there+"/site", here)
	assert.Equal(t, base.ExitFailure, code)
	assert.Contains(t, stderr, `left out "./site/evil": it is a link to "/etc/passwd", which is absolute`)
	isSite(t, here+"/site")
	// Into the container all links go as they are.
	code, _, stderr = w.run(t, "cp", "shop", there+"/site", "web:"+there+"/copy")
	require.Zero(t, code, stderr)
	target, err := os.Readlink(there + "/copy/evil")
	require.NoError(t, err)
	assert.Equal(t, "/etc/passwd", target)
}

// TestCopy_Errors are those of tar.
func TestCopy_Errors(t *testing.T) {
	t.Parallel()
	w := withTar(t)
	here := t.TempDir()
	require.NoError(t, os.WriteFile(here+"/f", []byte("x"), 0o600))
	for says, args := range map[string][]string{
		"none: Cannot stat: No such file":  {"web:" + here + "/none", here},
		"/none: Cannot open: No such file": {here + "/f", "web:" + here + "/none/f"},
	} {
		code, _, stderr := w.run(t, append([]string{"cp", "shop"}, args...)...)
		assert.Equal(t, base.ExitFailure, code, "%v: %s", args, stderr)
		assert.Contains(t, stderr, says)
	}
}

// TestCopy_Interrupted copies a file of holes, which is larger than what can be copied until then.
func TestCopy_Interrupted(t *testing.T) {
	t.Parallel()
	w := withTar(t)
	there, here := t.TempDir(), t.TempDir()
	require.NoError(t, os.MkdirAll(there+"/d", 0o700))
	require.NoError(t, os.WriteFile(there+"/d/a", make([]byte, 1<<20), 0o600))
	big, err := os.Create(there + "/d/z")
	require.NoError(t, err)
	require.NoError(t, big.Truncate(1<<40))
	require.NoError(t, big.Close())
	r := w.start(t, true, "", "cp", "shop", "web:"+there+"/d", here, "--max-size", "2Ti")
	r.sees(t, "/s)")
	r.cancel()
	assert.Equal(t, base.ExitInterrupted, r.ended(t))
	assert.Regexp(t, `interrupted; copied before: [01] files?`, r.err.String())
	_, err = os.Stat(here + "/d/z")
	require.ErrorIs(t, err, fs.ErrNotExist, "half a file does not appear")
	await.Until(t, "tar has ended", func() bool { return w.agent.Backend.Inside() == 0 })
}

func TestCopy_InInterrupted(t *testing.T) {
	t.Parallel()
	w := withTar(t)
	there, here := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(here+"/big", nil, 0o600))
	require.NoError(t, os.Truncate(here+"/big", 4<<30))
	r := w.start(t, true, "", "cp", "shop", here+"/big", "web:"+there+"/big")
	r.sees(t, "/s)")
	r.cancel()
	assert.Equal(t, base.ExitInterrupted, r.ended(t))
	assert.Contains(t, r.err.String(), "were sent; the last file may be incomplete")
	await.Until(t, "tar has ended", func() bool { return w.agent.Backend.Inside() == 0 })
}
