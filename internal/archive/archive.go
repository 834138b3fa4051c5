// Package archive puts files into tar streams and takes them out of streams that nobody
// vouches for, such as those of a program in a customer's container. Neither way holds
// more in memory than a buffer and the names on the way to the current file.
package archive

import (
	"fmt"
	"io"
	"sync/atomic"
)

// Limits of what is taken out of one stream.
type Limits struct {
	Entries int64 // files, directories and links
	Bytes   int64 // of files' contents
}

const (
	// maxName bounds a name and a link's target, in bytes: Linux has no longer paths.
	maxName = 4096
	// maxDepth bounds the directories that are open at once.
	maxDepth = 256
	// maxTrailer bounds what follows an archive's end: tar fills up a record, of 512
	// blocks at most where somebody asked for it.
	maxTrailer = 512 * 512
	// copyBuffer is what a file's contents go through.
	copyBuffer = 256 << 10
)

// Tally is what has been done so far. It may be read meanwhile.
type Tally struct {
	files, others, bytes atomic.Int64
}

// Files is how many files are done.
func (t *Tally) Files() int64 { return t.files.Load() }

// Bytes is how much of files' contents is done, that of unfinished ones with it.
func (t *Tally) Bytes() int64 { return t.bytes.Load() }

// Write implements io.Writer: it counts.
func (t *Tally) Write(p []byte) (int, error) {
	t.bytes.Add(int64(len(p)))
	return len(p), nil
}

// String says it to people.
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

// Size is a number of bytes for people.
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

// contents copies one file's, and counts them.
func (t *Tally) contents(to io.Writer, from io.Reader) error {
	// Neither side's own way to copy: those go past the count, or past the size.
	_, err := io.CopyBuffer(struct{ io.Writer }{io.MultiWriter(to, t)}, struct{ io.Reader }{from}, make([]byte, copyBuffer))
	return err
}
