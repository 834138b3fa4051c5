package console

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operators"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/internal/wake"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
)

// readTimeout bounds what one page reads.
const readTimeout = 30 * time.Second

// visitor returns the operator who has signed in. The zero value, which has no right, is for a
// request without a session.
func visitor(ctx context.Context) Visitor {
	session := web.SessionOf(ctx)
	if session == nil {
		return Visitor{}
	}
	v, _ := session.Value.(Visitor)
	return v
}

// calling returns the context for calls of the operator API by the operator who has signed in.
func calling(ctx context.Context) context.Context {
	return operatorapi.WithCaller(ctx, visitor(ctx).Identify)
}

// roles are the roles that calls need.
var roles = sync.OnceValue(func() map[string]string {
	roles := map[string]string{}
	for _, call := range operatorapi.Calls() {
		roles[call.ID] = call.Role
	}
	return roles
})

// may reports whether an operator may make a call, for what a page offers. The API decides.
func (v Visitor) may(call string) bool { return operators.Includes(v.Operator.Role, roles()[call]) }

// page returns a page that a redirect may have sent the browser to.
func page(r *http.Request, title, current, live string) web.Page {
	return web.Page{Title: title, Current: current, Notice: done[r.URL.Query().Get("done")], Live: live}
}

// show renders a page of what read returns.
func show[T any](c *Console, w http.ResponseWriter, r *http.Request, name string, of web.Page, read func(context.Context) (T, error)) error {
	ctx, cancel := context.WithTimeout(calling(r.Context()), readTimeout)
	defer cancel()
	data, err := read(ctx)
	if err != nil {
		return err
	}
	of.Data = data
	c.pages.Render(w, r, http.StatusOK, name, of)
	return nil
}

// follow keeps the live part of a page up to date.
func follow[T any](c *Console, w http.ResponseWriter, r *http.Request, name string, read func(context.Context) (T, error)) error {
	changed, stop := c.changes.listen()
	defer stop()
	stream, end, err := c.streams.Open(w)
	if err != nil {
		return err
	}
	defer end()
	of := page(r, "", "", "")
	_ = stream.Follow(r.Context(), changed, func() ([]byte, error) { //nolint:contextcheck // it has the request's
		ctx, cancel := context.WithTimeout(calling(r.Context()), readTimeout)
		defer cancel()
		data, err := read(ctx)
		if err != nil {
			return nil, err // the page connects again, if its session is still open
		}
		of.Data = data
		return c.pages.Part(r, name, of)
	})
	return nil
}

// paced returns a read that rests between two calls, for what costs others more than the database.
func paced[T any](rest time.Duration, read func(context.Context) (T, error)) func(context.Context) (T, error) {
	var last time.Time
	return func(ctx context.Context) (T, error) {
		retry.Wait(ctx, time.Until(last.Add(rest)))
		last = time.Now()
		return read(ctx)
	}
}

// broadcast notifies all open pages of changes.
type broadcast struct {
	mu    sync.Mutex
	ended bool
	to    map[wake.Signal]bool
}

// listen returns a channel that has a value after changes. It is closed at the end.
func (b *broadcast) listen() (changed <-chan struct{}, stop func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := wake.New()
	if b.ended {
		close(c)
		return c, func() {}
	}
	if b.to == nil {
		b.to = map[wake.Signal]bool{}
	}
	b.to[c] = true
	return c, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.to, c)
	}
}

func (b *broadcast) notify() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.to {
		c.Raise()
	}
}

func (b *broadcast) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	for c := range b.to {
		close(c)
		delete(b.to, c)
	}
}
