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
	in    *bufio.Reader
	name  []byte // of the ref; nil for HEAD alone
	first bool   // the first ref was passed on: the capabilities come with it
	ready bytes.Buffer
}

// only returns a reader of the advertisement in which there is one ref beside the first.
func only(in io.Reader, ref runnerapi.GitRef) io.Reader {
	f := &refFilter{in: bufio.NewReader(in)}
	switch {
	case ref.Tag != "":
		f.name = []byte("refs/tags/" + ref.Tag)
	case ref.Branch != "":
		f.name = []byte("refs/heads/" + ref.Branch)
	}
	return f
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
	line := make([]byte, max(int(size), 4)-4)
	if _, err := io.ReadFull(f.in, line); err != nil {
		return err
	}
	if f.wants(line) {
		f.ready.Write(head[:])
		f.ready.Write(line)
	}
	return nil
}

// wants reports whether a line is of the wanted ref, or no ref's.
func (f *refFilter) wants(line []byte) bool {
	const hash = 40
	if len(line) <= hash || line[hash] != ' ' { // a flush, the service, or shallow
		return true
	}
	if !f.first {
		f.first = true
		return true
	}
	name := bytes.TrimRight(line[hash+1:], "\n")
	return f.name != nil && bytes.Equal(bytes.TrimSuffix(name, []byte("^{}")), f.name)
}
