package wire

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// When all followed streams of one connection stop reading, what they hold of its window leaves
// room.
func TestWindows_LeaveRoom(t *testing.T) {
	require.Less(t, MaxStreams*FollowedWindow, ConnectionWindow)
}
