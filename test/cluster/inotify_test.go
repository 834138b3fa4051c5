package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// bounds are those of a kernel, in a folder.
func bounds(t *testing.T, instances, watches string) inotify {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "max_user_instances"), []byte(instances+"\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "max_user_watches"), []byte(watches+"\n"), 0o600))
	return inotify{dir, writeSysctl, func(int) error { return nil }}
}

func refuse(string, []byte) error { return unix.EROFS }

func TestInotify_Raises(t *testing.T) {
	k := bounds(t, "128", "524288")
	var out strings.Builder
	require.NoError(t, k.raise(&out))
	require.Equal(t, "raised fs.inotify.max_user_instances from 128 to 512, until this machine starts again\n", out.String())
	now, err := os.ReadFile(filepath.Join(k.dir, "max_user_instances"))
	require.NoError(t, err)
	require.Equal(t, "512", string(now))

	out.Reset()
	require.NoError(t, k.raise(&out))
	require.Empty(t, out.String(), "what is enough is left alone")
}

func TestInotify_MayNotRaise(t *testing.T) {
	k := bounds(t, "128", "524288")
	k.write = refuse
	require.NoError(t, k.raise(&strings.Builder{}), "it is enough for one cluster")

	k.try = func(int) error { return unix.EMFILE }
	err := k.raise(&strings.Builder{})
	require.ErrorContains(t, err, "fs.inotify.max_user_instances is too low")
	require.ErrorContains(t, err, "sysctl -w fs.inotify.max_user_instances=512")

	k = bounds(t, "512", "1024")
	k.write = refuse
	err = k.raise(&strings.Builder{})
	require.ErrorContains(t, err, "it is 1024")
	require.ErrorContains(t, err, "sysctl -w fs.inotify.max_user_watches=65536")
}

func TestInotify_TriesInstances(t *testing.T) {
	for range 200 { // more than there may be at once, by the kernel's default
		require.NoError(t, tryInstances(4))
	}
}
