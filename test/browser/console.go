package browser

import (
	"strings"
	"sync"
)

const (
	// streamCut is what htmx says of a stream that ends in the middle, for any reason.
	streamCut = "htmx:sse:error: network error"
	// noServer is what htmx says when it connects again and nothing listens.
	noServer = "htmx:sse:error: Failed to fetch"
	// noSession is what htmx says when it connects again after the session has ended.
	noSession = "htmx:sse:error: SSE reconnect failed with status 401"
)

// console keeps what pages should not have said.
type console struct {
	mu       sync.Mutex
	mistakes []string
	losing   bool
}

// add adds an error or a warning. It ignores messages of the source network: tests ask for pages
// that the server refuses.
func (c *console) add(source, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	lost := strings.Contains(text, noServer) || strings.Contains(text, noSession) || strings.Contains(text, streamCut)
	if source == "network" || c.losing && lost {
		return
	}
	c.mistakes = append(c.mistakes, text)
}

func (c *console) lose(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.losing = on
}

// wrong returns the mistakes.
func (c *console) wrong() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mistakes
}
