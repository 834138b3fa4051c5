package proc

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCPUIsUserAndSystemTime(t *testing.T) {
	got, err := cpuOf("42 (a) name) S 1 42 42 0 -1 4194560 900 0 0 0 250 50 7 7 20 0 12 0 300 1 1 1")
	require.NoError(t, err)
	assert.Equal(t, 3*time.Second, got)
	_, err = cpuOf("42 (short) S 1")
	assert.Error(t, err)
}

func TestThisProcessIsSeen(t *testing.T) {
	rss, err := Resident(os.Getpid())
	require.NoError(t, err)
	assert.Greater(t, rss, int64(1<<20))
	_, err = CPU(os.Getpid())
	require.NoError(t, err)
	_, err = Written(os.Getpid())
	require.NoError(t, err)
}
