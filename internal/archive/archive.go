// Package archive writes files into tar streams and extracts them from untrusted streams, such as
// those of a program in a customer's container. Both directions hold only a buffer in memory, and
// the names on the path to the current file.
package archive

import (
	"fmt"
	"io"
	"sync/atomic"
)

// Limits bounds what is extracted from one stream.
type Limits struct {
	Entries int64 // files, directories and links
	Bytes   int64 // of files' contents
}

const (
	// maxName bounds a name and a link's target, in bytes: Linux allows no longer paths.
	maxName = 4096
	// maxDepth bounds the directories that are open at once.
	maxDepth = 256
	// maxTrailer bounds what follows an archive's end: tar fills up a record, which has at most 512
	// blocks, if a user requests that.
	maxTrailer = 512 * 512
	// copyBuffer is the size of the buffer for files' contents.
	copyBuffer = 256 << 10
)

// Tally counts what has been done so far. It may be read concurrently.
type Tally struct {
	files, others, bytes atomic.Int64
}

// Files returns how many files are done.
func (t *Tally) Files() int64 { return t.files.Load() }

// Bytes returns how many bytes of files' contents are done, including those of unfinished files.
func (t *Tally) Bytes() int64 { return t.bytes.Load() }

// Write implements io.Writer by counting.
func (t *Tally) Write(p []byte) (int, error) {
	t.bytes.Add(int64(len(p)))
	return len(p), nil
}

// String returns the counts for display.
func (t *Tally) String() string {
	s := fmt.Sprintf("%d files", t.Files())
	if t.Files() == 1 {
		s = "1 file"
	}
	if n := t.others.Load(); n > 0 {
		s += fmt.Sprintf(", %d directories and links", n)
	}
	return s + ", " + Size(t.Bytes())
}

// Size formats a number of bytes for display.
func Size(n int64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d bytes", n)
	}
	size, unit := float64(n)/(1<<10), 0
	for ; size >= 1<<10 && unit < 3; unit++ {
		size /= 1 << 10
	}
	return fmt.Sprintf("%.1f %ciB", size, "KMGT"[unit])
}

// contents copies and counts the contents of one file.
func (t *Tally) contents(to io.Writer, from io.Reader) error {
	// Not the sides' own methods of copying, which bypass the count or the size.
	_, err := io.CopyBuffer(struct{ io.Writer }{io.MultiWriter(to, t)}, struct{ io.Reader }{from}, make([]byte, copyBuffer))
	return err
}
