package git

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// refFilter passes an advertisement on without the branches and tags that the agent did not ask
// for: as values, those of a large repository take many times their bytes.
type refFilter struct {
	in     *bufio.Reader
	ref    runnerapi.GitRef
	name   []byte  // of the ref; nil for HEAD alone
	newest *newest // nil unless the ref is a range of versions
	first  bool    // the first ref was passed on: the capabilities come with it
	ready  bytes.Buffer
}

// only returns what reduces an advertisement to one ref beside the first.
func only(ref runnerapi.GitRef) (*refFilter, error) {
	f := &refFilter{ref: ref}
	var err error
	switch {
	case ref.Semver != "":
		f.newest, err = newestWithin(ref.Semver)
	case ref.Tag != "":
		f.name = []byte(tags + ref.Tag)
	case ref.Branch != "":
		f.name = []byte("refs/heads/" + ref.Branch)
	}
	return f, err
}

// of has the filter read an advertisement.
func (f *refFilter) of(in io.Reader) io.Reader {
	f.in = bufio.NewReader(in)
	return f
}

// found returns the ref, once the advertisement was read: for a range of versions, a tag.
func (f *refFilter) found() (runnerapi.GitRef, error) {
	if f.newest == nil {
		return f.ref, nil
	}
	return f.newest.found()
}

// Read implements io.Reader.
func (f *refFilter) Read(p []byte) (int, error) {
	for f.ready.Len() == 0 {
		if err := f.next(); err != nil {
			return 0, err
		}
	}
	return f.ready.Read(p)
}

// next reads one pkt-line (gitprotocol-common(5)), and keeps it if it is wanted.
func (f *refFilter) next() error {
	var head [4]byte
	if _, err := io.ReadFull(f.in, head[:]); err != nil {
		return err
	}
	size, err := strconv.ParseUint(string(head[:]), 16, 16)
	if err != nil || size > 0 && size < 4 {
		return fmt.Errorf("invalid pkt-line length %.4q", head)
	}
	line := make([]byte, max(int(size), 4))
	copy(line, head[:])
	if _, err := io.ReadFull(f.in, line[len(head):]); err != nil {
		return err
	}
	f.pass(line)
	return nil
}

// pass keeps a line if it is of the wanted ref, or no ref's.
func (f *refFilter) pass(line []byte) {
	const hash = 4 + 40                         // after the length
	if len(line) <= hash || line[hash] != ' ' { // a flush, the service, or shallow
		if f.newest != nil {
			f.ready.Write(f.newest.take()) // before shallow, and the flush
		}
		f.ready.Write(line)
		return
	}
	name, _, _ := bytes.Cut(bytes.TrimRight(line[hash+1:], "\n"), []byte{0}) // capabilities
	switch {
	case !f.first:
		f.first = true
		f.ready.Write(line)
		if f.newest != nil {
			f.newest.see(name, nil)
		}
	case f.newest != nil:
		f.newest.see(name, line)
	case f.name != nil && bytes.Equal(bytes.TrimSuffix(name, peeled), f.name):
		f.ready.Write(line)
	}
}
