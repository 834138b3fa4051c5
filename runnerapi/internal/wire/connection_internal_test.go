package wire

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAllWhoFollowMayStop on one connection, and what they keep of its window leaves some.
func TestAllWhoFollowMayStop(t *testing.T) {
	require.Less(t, MaxStreams*FollowedWindow, ConnectionWindow)
}
