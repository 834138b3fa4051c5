package tunnel

import (
	"errors"
	"io"
	"sync/atomic"
	"time"

	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/link"
	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/mux"
)

// farewellTimeout bounds reading one.
const farewellTimeout = 5 * time.Second

// farewell is the message of a server that stops: it opens a stream, which it does for nothing
// else.
type farewell struct{ said atomic.Pointer[link.Refused] }

// hear reads a stream that the server has opened, and ends the session if it announces the server's
// stop.
func (f *farewell) hear(stream *mux.Stream) {
	_ = stream.SetReadDeadline(time.Now().Add(farewellTimeout))
	text, err := io.ReadAll(io.LimitReader(stream, link.MaxRefusal))
	_ = stream.Close()
	if told, ok := link.ParseRefusal(string(text)); err == nil && ok {
		f.said.Store(&told)
		_ = stream.Session().Close()
	}
}

func (f *farewell) heard() *link.Refused { return f.said.Load() }

func (t *Tunnel) farewellError(told *link.Refused) error {
	e := t.wrap(opStay, errors.New(told.Reason), actWait)
	e.Spread = told.Within
	return e
}

// isRefusal reports whether err is what a control plane has answered, so that the way there is
// open.
func isRefusal(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.refused
}
