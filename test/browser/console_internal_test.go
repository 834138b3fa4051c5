package browser

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestConsole_CutStreamFails: a stream that is cut is an error unless the test stops the server.
func TestConsole_CutStreamFails(t *testing.T) {
	const (
		cut  = "error: htmx: htmx:sse:error: network error TypeError: network error"
		gone = "error: htmx: htmx:sse:error: Failed to fetch"
	)
	c := &console{}
	c.add("network", "error: Failed to load resource: the server responded with a status of 404")
	c.lose(true)
	c.add("", cut)
	c.add("", gone)
	c.lose(false)
	assert.Empty(t, c.wrong())
	c.add("", cut)
	c.add("", gone)
	c.add("security", "Refused to apply inline style")
	assert.Len(t, c.wrong(), 3)
}
