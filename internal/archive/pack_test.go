//go:build unix

package archive_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/archive"
)

// packing of a directory with something to pack.
func packing(t *testing.T) (p *archive.Packing, left *[]string) {
	t.Helper()
	root, err := os.OpenRoot(t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { _ = root.Close() })
	require.NoError(t, root.Mkdir("site", 0o750))
	require.NoError(t, root.WriteFile("site/page", []byte("hello"), 0o640))
	require.NoError(t, root.Symlink("/etc/passwd", "site/link"))
	left = new([]string)
	return &archive.Packing{
		Root: root, From: "site", To: "named", Tally: &archive.Tally{},
		LeftOut: func(name, why string) { *left = append(*left, name+": "+why) },
	}, left
}

func TestPack_OmitsOwners(t *testing.T) {
	p, left := packing(t)
	require.NoError(t, p.Root.Mkdir("site/"+strings.Repeat("long", 60), 0o700))
	var b bytes.Buffer
	require.NoError(t, p.Pack(t.Context(), &b))
	assert.Empty(t, *left)
	names := map[string]*tar.Header{}
	for r := tar.NewReader(&b); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		assert.Equal(t, []any{0, 0, "", ""}, []any{h.Uid, h.Gid, h.Uname, h.Gname}, h.Name)
		names[h.Name] = h
	}
	require.Len(t, names, 4)
	assert.Equal(t, int64(0o640), names["./named/page"].Mode)
	assert.Equal(t, "/etc/passwd", names["./named/link"].Linkname, "a link, not what it leads to")
	assert.Contains(t, names, "./named/"+strings.Repeat("long", 60)+"/")
}

func TestPack_SkipsSockets(t *testing.T) {
	p, left := packing(t)
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", p.Root.Name()+"/site/s")
	require.NoError(t, err)
	defer func() { _ = ln.Close() }()
	require.NoError(t, p.Pack(t.Context(), io.Discard))
	assert.Equal(t, []string{"site/s: it is neither a file nor a directory nor a link"}, *left)
	assert.Equal(t, int64(1), p.Tally.Files())
}

func TestPack_ShrinkingFile(t *testing.T) {
	p, _ := packing(t)
	require.NoError(t, p.Root.WriteFile("site/big", make([]byte, 4<<20), 0o600))
	cut := writer(func() {
		if p.Tally.Bytes() > 0 {
			_ = os.Truncate(p.Root.Name()+"/site/big", 1<<20)
		}
	})
	require.ErrorContains(t, p.Pack(t.Context(), cut), "site/big became shorter while it was read")
}

// writer does something before each write.
type writer func()

func (w writer) Write(p []byte) (int, error) {
	w()
	return len(p), nil
}

func TestPack_Cancelled(t *testing.T) {
	p, _ := packing(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, p.Pack(ctx, io.Discard), context.Canceled)
}

func TestSize(t *testing.T) {
	for n, want := range map[int64]string{0: "0 bytes", 1023: "1023 bytes", 1 << 10: "1.0 KiB", 3 << 29: "1.5 GiB", 1 << 60: "1048576.0 TiB"} {
		assert.Equal(t, want, archive.Size(n))
	}
}
