package tunnel

import (
	"bytes"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/link"
	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/mux"
)

// goAwayTimeout bounds reading one.
const goAwayTimeout = 5 * time.Second

// goAway is the message of a server that stops, on a stream that it opens.
type goAway struct{ said atomic.Pointer[link.Refused] }

// hear reads the rest of a stream that the server has opened, and ends the session if it announces
// the server's stop.
func (f *goAway) hear(first byte, stream *mux.Stream) {
	text, err := io.ReadAll(io.LimitReader(io.MultiReader(bytes.NewReader([]byte{first}), stream), link.MaxRefusal))
	_ = stream.Close()
	if told, ok := link.ParseRefusal(string(text)); err == nil && ok {
		f.said.Store(&told)
		_ = stream.Session().Close()
	}
}

func (f *goAway) heard() *link.Refused { return f.said.Load() }

// isRefusal reports whether err is what a control plane has answered, so that the control plane
// can be reached.
func isRefusal(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.refused
}
