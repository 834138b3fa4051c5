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
