package browser

import (
	"strings"
	"sync"
)

const (
	// streamCut is what htmx says of a stream that ends in the middle, for any reason.
	streamCut = "htmx:sse:error: network error"
	// networkChanged is what Chromium says when it closes a connection of HTTP/2 because an
	// interface of the machine got or lost an address: tests beside this one make networks for
	// pods. It leaves connections of HTTP/1.1 open. Any other reason, such as
	// ERR_INCOMPLETE_CHUNKED_ENCODING, is a mistake of the server.
	networkChanged = "net::ERR_NETWORK_CHANGED"
	// noServer is what htmx says when it connects again and nothing listens.
	noServer = "htmx:sse:error: Failed to fetch"
)

// console keeps what pages should not have said. For each stream that is cut, Chromium gives its
// reason in a message of its own, before or after htmx' one.
type console struct {
	mu            sync.Mutex
	mistakes, cut []string
	changes       int
	losing        bool
}

// add adds an error or a warning. The source is network for what Chromium says of a request.
func (c *console) add(source, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case source == "network":
		if strings.Contains(text, networkChanged) {
			c.changes++
		}
	case c.losing && (strings.Contains(text, noServer) || strings.Contains(text, streamCut)):
	case strings.Contains(text, streamCut):
		c.cut = append(c.cut, text)
	default:
		c.mistakes = append(c.mistakes, text)
	}
}

func (c *console) lose(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.losing = on
}

// wrong returns the mistakes: a stream may be cut as often as the machine's network changed.
func (c *console) wrong() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append(c.mistakes, c.cut[min(c.changes, len(c.cut)):]...)
}
