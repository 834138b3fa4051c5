package console

import (
	"context"
	"net/http"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
)

// readTimeout bounds what one page reads.
const readTimeout = 30 * time.Second

// site is what all pages share.
type site struct {
	opts    Options
	pages   *web.Pages
	streams *web.Streams
	changes broadcast
}

// page returns a page that a redirect may have sent the browser to.
func page(r *http.Request, title, current, live string) web.Page {
	return web.Page{Title: title, Current: current, Notice: done[r.URL.Query().Get("done")], Live: live}
}

// show renders a page of what read returns.
func show[T any](s *site, w http.ResponseWriter, r *http.Request, name string, of web.Page, read func(context.Context) (T, error)) error {
	ctx, cancel := context.WithTimeout(calling(r.Context()), readTimeout)
	defer cancel()
	data, err := read(ctx)
	if err != nil {
		return err
	}
	of.Data = data
	s.pages.Render(w, r, http.StatusOK, name, of)
	return nil
}

// follow keeps the live part of a page up to date.
func follow[T any](s *site, w http.ResponseWriter, r *http.Request, name string, read func(context.Context) (T, error)) error {
	changed, stop := s.changes.listen()
	defer stop()
	stream, end, err := s.streams.Open(w, r)
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
		return s.pages.Part(r, name, of)
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
