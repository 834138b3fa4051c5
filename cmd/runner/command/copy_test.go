//go:build unix

package command

import (
	"io/fs"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// withTar is a world in which the App web has this machine's tar and files.
func withTar(t *testing.T) *world {
	t.Helper()
	w := withWeb(t)
	w.agent.Backend.Machine()
	return w
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
	assert.Equal(t, cmdutil.ExitInterrupted, r.ended(t))
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
	assert.Equal(t, cmdutil.ExitInterrupted, r.ended(t))
	assert.Contains(t, r.err.String(), "were sent; the last file may be incomplete")
	await.Until(t, "tar has ended", func() bool { return w.agent.Backend.Inside() == 0 })
}
