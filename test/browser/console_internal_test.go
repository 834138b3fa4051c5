package browser

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestACutStreamIsAMistake unless Chromium says that the machine's network changed, in either order
// of the two messages.
func TestACutStreamIsAMistake(t *testing.T) {
	const cut = "error: htmx: htmx:sse:error: network error TypeError: network error"
	because := func(reason string) string { return "error: Failed to load resource: net::" + reason }
	c := &console{}
	c.add("network", because("ERR_NETWORK_CHANGED"))
	c.add("", cut)
	c.add("", cut)
	c.add("network", because("ERR_NETWORK_CHANGED"))
	assert.Empty(t, c.wrong())
	c.add("network", because("ERR_INCOMPLETE_CHUNKED_ENCODING"))
	c.add("", cut)
	assert.Equal(t, []string{cut}, c.wrong())

	c = &console{}
	c.add("network", "error: Failed to load resource: the server responded with a status of 404")
	c.lose(true)
	c.add("", "error: htmx: htmx:sse:error: Failed to fetch")
	c.lose(false)
	assert.Empty(t, c.wrong())
	c.add("", "error: htmx: htmx:sse:error: Failed to fetch")
	c.add("security", "Refused to apply inline style")
	assert.Len(t, c.wrong(), 2)
}
