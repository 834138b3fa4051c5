package doctor

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/tunnel"
)

// TestFailure_PrintsFixOnce: the tunnel's error holds the websocket's, with its own fix.
func TestFailure_PrintsFixOnce(t *testing.T) {
	both := func(action string) error {
		websocket := &tunnel.Error{Op: "connect to", Where: "https://cp.example.com", Err: errors.New("refused"), Action: action}
		return &tunnel.Error{
			Op: "connect to", Where: "cp.example.com:7000", Action: "check the firewall",
			Err: fmt.Errorf("refused; and over a websocket: %w", websocket),
		}
	}
	assert.Equal(t, failed("connect to cp.example.com:7000: refused; and over a websocket: tunnel: connect to https://cp.example.com: refused",
		"check the firewall"), failure(both("check the firewall"), "other"))
	assert.Contains(t, failure(both("ask the proxy's owner"), "other")[0].Detail, "refused; ask the proxy's owner", "another fix stays")
}
