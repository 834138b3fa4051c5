package dashboard

import (
	"context"
	"net/http"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
)

const (
	// readTimeout bounds what one page reads.
	readTimeout = 15 * time.Second
	// lookAgain is how often an open page looks at what it cannot watch.
	lookAgain = 10 * time.Second
	// watchPause is how long to wait before a watch that ended begins again.
	watchPause = 5 * time.Second
)

func notFound() error {
	return problem.Errorf(problem.NotFound, "choose a page in the navigation", "there is no such page")
}

// done are the notices after a change, by the query that a redirect carries.
var done = map[string]string{
	"restart":  "The restart is under way. Pods are replaced a few at a time.",
	"scale":    "The number of pods is set.",
	"rollback": "The rollback is under way.",
	"pause":    "All commands of Runners are refused from now on.",
	"resume":   "Runners can send commands again.",
	"approve":  "The command is approved. The Runner can send it again, once.",
}

// page returns a page that a redirect may have sent the browser to.
func page(r *http.Request, title, current, live string, data any) web.Page {
	return web.Page{Title: title, Current: current, Notice: done[r.URL.Query().Get("done")], Live: live, Data: data}
}

// show renders a page of what read returns.
func show[T any](d *Dashboard, w http.ResponseWriter, r *http.Request, name string, of web.Page, read func(context.Context) (T, error)) error {
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	data, err := read(ctx)
	if err != nil {
		return kubeproblem.From(err, "reading the cluster")
	}
	of.Data = data
	d.pages.Render(w, r, http.StatusOK, name, of)
	return nil
}

// follow keeps the live part of a page up to date.
func follow[T any](d *Dashboard, w http.ResponseWriter, r *http.Request, name string, of web.Page, read func(context.Context) (T, error), watch ...watched) error {
	stream, end, err := d.streams.Open(w)
	if err != nil {
		return err
	}
	defer end()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	_ = stream.Follow(ctx, d.cluster.changes(ctx, watch...), func() ([]byte, error) {
		reading, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		data, err := read(reading)
		if err != nil {
			return nil, err // the page connects again
		}
		of.Data = data
		return d.pages.Part(r, name, of)
	})
	return nil
}

// trouble is one thing that is wrong, and what to do about it.
type trouble struct{ Title, Detail, Fix, Href, Tone string }

// unread is the problem of a part of a page that could not be read; nil for none. The others are
// shown.
func unread(err error, doing string) *problem.Error {
	if err == nil {
		return nil
	}
	return web.ProblemOf(kubeproblem.From(err, doing))
}
