package transport

import (
	"context"
	"net/http"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// goAwayTime is how long streams have to send the reason for their end, before the connection of
// a Runner that may not stay is closed. The connection accepts no new call meanwhile.
const goAwayTime = time.Second

// stream is a call that receives the reason for its end.
type stream struct{ cancel context.CancelCauseFunc }

// EndWith makes cancel be called when the Runner of the call may no longer stay.
func EndWith(ctx context.Context, cancel context.CancelCauseFunc) (leave func()) {
	d, ok := ctx.Value(trackedKey{}).(*trackedConn)
	if !ok {
		return func() {}
	}
	s := &stream{cancel}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.streams == nil {
		d.streams = map[*stream]struct{}{}
	}
	d.streams[s] = struct{}{}
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.streams, s)
	}
}

// endStreams reports whether there are streams, which end now, and the connection after them.
func (d *trackedConn) endStreams(code runnerapi.Code) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.streams) == 0 {
		return d.leaving
	}
	d.leaving = true
	why := problem.New(http.StatusForbidden, code, "ask the operator of the control plane for credentials",
		"this Runner may not use the agent any more")
	for s := range d.streams {
		s.cancel(why)
	}
	time.AfterFunc(goAwayTime, func() { _ = d.Close() })
	return true
}

// isLeaving reports whether the connection of a call is about to be closed.
func isLeaving(ctx context.Context) bool {
	d, ok := ctx.Value(trackedKey{}).(*trackedConn)
	if !ok {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.leaving
}
