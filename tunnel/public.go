package tunnel

import (
	"io"
	"sync/atomic"
	"time"

	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/link"
	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/mux"
)

// openedTimeout bounds how long the server may take to say what a stream is that it has opened.
const openedTimeout = goAwayTimeout

// opened reads from a stream's first byte of what kind it is. One of public traffic can get to the
// Public listener and to nothing else. open counts those.
func (t *Tunnel) opened(opened *mux.Stream, sent *goAway, offers *link.Gate, open *atomic.Int64, leaving *atomic.Bool) {
	_ = opened.SetReadDeadline(time.Now().Add(openedTimeout))
	var first [1]byte
	if _, err := io.ReadFull(opened, first[:]); err != nil {
		_ = opened.Close()
		return
	}
	switch first[0] {
	case link.PublicMark:
	case link.LeaveMark:
		leaving.Store(true)
		_ = opened.Close()
		return
	default:
		sent.hear(first[0], opened)
		return
	}
	_ = opened.SetReadDeadline(time.Time{})
	if !t.cfg.TakePublic {
		_ = opened.Close()
		return
	}
	open.Add(1)
	conn := publicStream{link.NewStream(opened, func() { open.Add(-1) }), leaving}
	if !offers.Go(func() { t.public.offer(conn, opened.Session().CloseChan()) }) {
		_ = conn.Close()
	}
}

// publicStream is a stream of public traffic.
type publicStream struct {
	*link.Stream
	leaving *atomic.Bool
}

// Leaving reports whether the server stops: the next answer should be the stream's last.
func (p publicStream) Leaving() bool { return p.leaving.Load() }
