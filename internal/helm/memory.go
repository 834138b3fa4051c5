package helm

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/internal/helm/stored"
	"github.com/pipeops/pipeops-vm-agent/internal/memory"
	"github.com/pipeops/pipeops-vm-agent/internal/render"
)

// Memory that a command reserves, in bytes, until it waits for its objects. Reading a stored
// revision reserves more, by the revision's size.
const (
	// rendering is for a command that renders a chart. The child's memory becomes the agent's when
	// the child has ended: for the objects of what it rendered.
	rendering = render.Memory + changing
	// changing is for a command that renders nothing.
	changing = 16 << 20
	// perRendered is how many bytes of memory a byte of a rendered text takes: the text is parsed
	// for the comparison, and again by Helm.
	perRendered = 12
	// perChart is the same for a byte of a chart as it is stored.
	perChart = 3
)

// reserve waits until there is memory for a command.
func (s *session) reserve(ctx context.Context, bytes int64) error {
	s.lock.say("waiting for memory")
	hold, err := memory.Acquire(ctx, s.key.Namespace, s.lock.operation().Command+" of release "+s.key.Name, bytes)
	s.hold = hold
	return err
}

// read admits the reading of a revision: as a part of the command, or, before the command has
// reserved memory and after it has released it, as work for itself.
func (s *session) read(bytes int64) (done func(), err error) {
	if !s.hold.Holds() {
		return readingOf(s.ctx, s.key.Namespace)(bytes)
	}
	before, err := s.hold.Grow(bytes)
	if err != nil {
		return nil, err
	}
	return func() { s.hold.Shrink(before) }, nil
}

// readingOf admits the reading of revisions by what is not a command.
func readingOf(ctx context.Context, namespace string) stored.Admit {
	return func(bytes int64) (done func(), err error) {
		hold, err := memory.Acquire(ctx, namespace, "reading a revision of a release", bytes)
		if err != nil {
			return nil, err
		}
		return hold.Release, nil
	}
}

// sizeOf returns what a rendered chart takes in memory, in bytes.
func sizeOf(out render.Result) int64 {
	n := perChart * len(out.Chart)
	for _, t := range out.Texts {
		n += perRendered * len(t.Body)
	}
	for _, t := range out.CRDs {
		n += perRendered * len(t.Body)
	}
	return int64(n)
}
