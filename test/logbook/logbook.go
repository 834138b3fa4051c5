// Package logbook keeps what is logged or printed while a test runs, so that the test can read it
// meanwhile.
package logbook

import (
	"bytes"
	"strings"
	"sync"
)

// Book may be written and read by several goroutines. The zero value is empty.
type Book struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (b *Book) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String returns all that was written so far.
func (b *Book) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// Count returns the number of lines that contain all words.
func (b *Book) Count(words ...string) (n int) {
	for line := range strings.Lines(b.String()) {
		found := true
		for _, w := range words {
			found = found && strings.Contains(line, w)
		}
		if found {
			n++
		}
	}
	return n
}
