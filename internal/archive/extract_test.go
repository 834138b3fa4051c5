//go:build unix

package archive_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/archive"
)

var then = time.Date(2024, 2, 29, 12, 30, 15, 0, time.UTC)

// stream is an archive of the entries as they are given.
func stream(t testing.TB, entries ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		contents := "contents"
		if h.Typeflag != tar.TypeReg {
			contents = ""
		}
		h.Size, h.ModTime = int64(len(contents)), then
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		require.NoError(t, w.WriteHeader(&h))
		_, err := io.WriteString(w, contents)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

func file(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeReg} }
func link(name, target string) tar.Header {
	return tar.Header{Name: name, Linkname: target, Typeflag: tar.TypeSymlink}
}
func hard(name, first string) tar.Header {
	return tar.Header{Name: name, Linkname: first, Typeflag: tar.TypeLink}
}
func dir(name string, mode int64) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: mode}
}

// extraction into dir/in of what is called top.
func extraction(t testing.TB, base string) (x *archive.Extraction, left *[]string) {
	t.Helper()
	in := filepath.Join(base, "in")
	require.NoError(t, os.MkdirAll(in, 0o700))
	root, err := os.OpenRoot(in)
	require.NoError(t, err)
	t.Cleanup(func() { _ = root.Close() })
	left = new([]string)
	return &archive.Extraction{
		Root: root, From: "top", To: "top", Tally: &archive.Tally{},
		Limits:  archive.Limits{Entries: 100, Bytes: 1 << 20},
		LeftOut: func(name, why string) { *left = append(*left, name+": "+why) },
	}, left
}

func TestExtract_KeepsModesTimesLinks(t *testing.T) {
	base := t.TempDir()
	x, left := extraction(t, base)
	script := file("./top/run.sh")
	script.Mode = 0o4751
	require.NoError(t, x.Extract(bytes.NewReader(stream(t, dir("./top/", 0o500), script, dir("./top/a", 0o750), file("./top/a/b"),
		link("./top/a/link", "../run.sh"), link("./top/here", "."), hard("./top/again", "./top/run.sh")))))
	assert.Empty(t, *left)
	for name, mode := range map[string]fs.FileMode{"top": fs.ModeDir | 0o500, "top/a": fs.ModeDir | 0o750, "top/run.sh": 0o751, "top/again": 0o751} {
		info, err := os.Lstat(filepath.Join(base, "in", name))
		require.NoError(t, err)
		assert.Equal(t, mode, info.Mode(), "%s: setuid is not kept", name)
		assert.True(t, info.ModTime().Equal(then), name)
	}
	require.NoError(t, os.Chmod(filepath.Join(base, "in", "top"), 0o700))
	text, err := os.ReadFile(filepath.Join(base, "in", "top", "a", "link"))
	require.NoError(t, err)
	assert.Equal(t, "contents", string(text))
	assert.Equal(t, []int64{2, 16}, []int64{x.Tally.Files(), x.Tally.Bytes()})
}

func TestExtract_Refuses(t *testing.T) {
	for name, c := range map[string]struct {
		says    string
		entries []tar.Header
	}{
		"absolute":              {"absolute name", []tar.Header{file("/etc/passwd")}},
		"up":                    {"..", []tar.Header{file("top/../../evil")}},
		"another name":          {"was not asked for", []tar.Header{file("topper/evil")}},
		"too deep":              {"directories down", []tar.Header{file("top/" + strings.Repeat("a/", 300) + "b")}},
		"a file in a link":      {"not followed", []tar.Header{dir("top/d", 0o755), link("top/l", "d"), file("top/l/x")}},
		"a file in a file":      {"not a directory", []tar.Header{file("top/f"), file("top/f/x")}},
		"a directory as a file": {"", []tar.Header{dir("top/d", 0o755), file("top/d/x"), file("top/d")}},
		"a link out of it":      {"..", []tar.Header{hard("top/h", "../../etc/passwd")}},
		"a link to the machine": {"absolute name", []tar.Header{hard("top/h", "/etc/passwd")}},
	} {
		x, _ := extraction(t, t.TempDir())
		err := x.Extract(bytes.NewReader(stream(t, append([]tar.Header{file("top/before")}, c.entries...)...)))
		require.Error(t, err, name)
		assert.Contains(t, err.Error(), c.says, name)
		assert.Contains(t, err.Error(), c.entries[len(c.entries)-1].Name[:3], name)
		assert.Positive(t, x.Tally.Files(), "what came before stays and is counted: %s", name)
	}
}

func TestExtract_SkipsOutsidePaths(t *testing.T) {
	for name, last := range map[string]tar.Header{
		"absolute":            link("top/l", "/etc/passwd"),
		"up":                  link("top/l", "../x"),
		"up from further in":  link("top/a/b/l", "../../../x"),
		"down and up":         link("top/l", "deep/link/.."),
		"the copy itself":     link("top", "elsewhere"),
		"a drive":             link("top/l", `C:\Windows`),
		"a device":            {Name: "top/null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3},
		"a pipe":              {Name: "top/pipe", Typeflag: tar.TypeFifo},
		"a link to a symlink": hard("top/h", "top/s"),
	} {
		x, left := extraction(t, t.TempDir())
		entries := []tar.Header{last}
		if last.Typeflag == tar.TypeLink {
			entries = []tar.Header{link("top/s", "x"), last}
		}
		require.NoError(t, x.Extract(bytes.NewReader(stream(t, entries...))), name)
		require.Len(t, *left, 1, name)
		assert.Contains(t, (*left)[0], last.Name, name)
		_, err := x.Root.Lstat(last.Name)
		require.ErrorIs(t, err, fs.ErrNotExist, name)
	}
}

func TestExtract_ReplacesFiles(t *testing.T) {
	base := t.TempDir()
	x, _ := extraction(t, base)
	victim := filepath.Join(base, "victim")
	require.NoError(t, os.WriteFile(victim, []byte("mine"), 0o600))
	require.NoError(t, os.Symlink(victim, filepath.Join(base, "in", "top")))
	require.NoError(t, x.Extract(bytes.NewReader(stream(t, file("top")))))
	text, err := os.ReadFile(victim)
	require.NoError(t, err)
	assert.Equal(t, "mine", string(text), "nothing is written through a link")
	text, err = os.ReadFile(filepath.Join(base, "in", "top"))
	require.NoError(t, err)
	assert.Equal(t, "contents", string(text))
}

func TestExtract_Limits(t *testing.T) {
	x, _ := extraction(t, t.TempDir())
	x.Limits.Entries = 2
	many := stream(t, file("top/1"), file("top/2"), file("top/3"))
	require.ErrorContains(t, x.Extract(bytes.NewReader(many)), "more than 2 files")
	x, _ = extraction(t, t.TempDir())
	x.Limits.Bytes = 20
	require.ErrorContains(t, x.Extract(bytes.NewReader(many)), "more than 20 bytes")
	assert.Equal(t, int64(16), x.Tally.Bytes())
	x, _ = extraction(t, t.TempDir())
	require.ErrorContains(t, x.Extract(io.MultiReader(bytes.NewReader(many), endless{})), "continues after its end")
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestExtract_Truncated(t *testing.T) {
	base := t.TempDir()
	x, _ := extraction(t, base)
	whole := stream(t, file("top/1"), file("top/2"))
	broke := errors.New("broke off")
	err := x.Extract(io.MultiReader(bytes.NewReader(whole[:3*512+3]), failing{broke}))
	require.ErrorIs(t, err, broke)
	assert.Contains(t, err.Error(), `"top/2": not complete`)
	entries, err := os.ReadDir(filepath.Join(base, "in", "top"))
	require.NoError(t, err)
	require.Len(t, entries, 1)
	assert.Equal(t, "1", entries[0].Name())
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestExtractFile(t *testing.T) {
	var out bytes.Buffer
	var tally archive.Tally
	require.NoError(t, archive.ExtractFile(bytes.NewReader(stream(t, file("./f"))), &out, &tally))
	assert.Equal(t, "contents", out.String())
	require.ErrorContains(t, archive.ExtractFile(bytes.NewReader(stream(t, dir("./d", 0o755))), io.Discard, &tally), "is not a file")
	require.ErrorContains(t, archive.ExtractFile(bytes.NewReader(stream(t, file("1"), file("2"))), io.Discard, &tally), "more than one")
}

// FuzzExtract takes out hostile archives. Nothing may change outside of the directory, and
// no link in it may lead out of it.
func FuzzExtract(f *testing.F) {
	f.Add(stream(f, dir("top", 0o755), file("top/a"), link("top/l", "a"), hard("top/h", "top/a")))
	f.Add(stream(f, link("top/l", ".."), file("top/l/evil")))
	f.Add(stream(f, dir("top/d", 0o755), link("top/d/e", "../d"), link("top/f", "d/e/../..")))
	f.Add(stream(f, file("../evil")))
	f.Add(stream(f, hard("top/h", "../victim")))
	f.Fuzz(func(t *testing.T, text []byte) {
		base := t.TempDir()
		victim := filepath.Join(base, "victim")
		require.NoError(t, os.WriteFile(victim, []byte("mine"), 0o600))
		x, _ := extraction(t, base)
		_ = x.Extract(bytes.NewReader(text))
		around, err := os.ReadDir(base)
		require.NoError(t, err)
		require.Len(t, around, 2, "victim and in")
		mine, err := os.ReadFile(victim)
		require.NoError(t, err)
		require.Equal(t, "mine", string(mine))
		inside, err := os.ReadDir(filepath.Join(base, "in"))
		require.NoError(t, err)
		for _, e := range inside {
			require.Equal(t, "top", e.Name(), "nothing beside what was asked for, nothing unfinished")
		}
		top := filepath.Join(base, "in", "top")
		_ = filepath.WalkDir(top, func(name string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				_ = os.Chmod(name, 0o700)
			}
			if err != nil {
				return err
			}
			if e.Type()&fs.ModeSymlink == 0 {
				return nil
			}
			if leads, err := filepath.EvalSymlinks(name); err == nil {
				require.True(t, leads == top || strings.HasPrefix(leads, top+"/"), "%s leads to %s", name, leads)
			}
			return nil
		})
	})
}
