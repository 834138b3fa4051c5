package dashboard

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/audit"
	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const (
	// readTimeout bounds what one page reads.
	readTimeout = 15 * time.Second
	// lookAgain is how often an open page looks at what it cannot watch.
	lookAgain = 10 * time.Second
	// watchPause is how long to wait before a watch that ended begins again.
	watchPause = 5 * time.Second
)

// theCluster names the cluster's API server among the outages.
const theCluster = "cluster"

// site is what all pages share.
type site struct {
	opts    Options
	cluster *cluster
	pages   *web.Pages
	streams *web.Streams
	outages *outages
}

// record writes to the audit log what the owner did, and how it ended. An act is not undone if it
// cannot be recorded.
func (d *site) record(ctx context.Context, act runnerapi.AuditRecord, err error) {
	if d.opts.Acts == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer cancel()
	act.Millis = d.opts.Now().Sub(act.Time).Milliseconds()
	if err := audit.Append(ctx, d.opts.Acts, ownersName, act, err); err != nil {
		d.opts.Log.Warn().Err(err).Str("command", act.Command).Msg("failed to record a change in the audit log")
	}
}

// done are the notices after a change, by the query that a redirect carries.
var done = map[string]string{
	"restart-app":  "The restart is in progress. Pods are replaced a few at a time.",
	"scale-app":    "The number of pods is set.",
	"start-app":    "The App starts.",
	"stop-app":     "The App stops. Its pods end.",
	"pause-app":    "The App is paused.",
	"resume-app":   "The App is resumed.",
	"delete-app":   "The App is deleted. Its pods end.",
	"rollback-app": "The rollback is in progress.",
	"pause":        "All commands of Runners are refused from now on.",
	"resume":       "Runners can send commands again.",
	"approve":      "The command is approved. The Runner can send it again, once.",
}

// page returns a page that a redirect may have sent the browser to.
func page(r *http.Request, title, current string, data any) web.Page {
	return web.Page{Title: title, Current: current, Notice: done[r.URL.Query().Get("done")], Data: data}
}

// view is a page that shows what read returns.
type view[T any] struct {
	site *site
	name string // of the template
	page func(r *http.Request) web.Page
	read func(r *http.Request) func(context.Context) (T, error)
	// watch is what wakes the stream of an open page. A page without it is read once.
	watch func(r *http.Request) []watched
}

// titled returns the function page of a view whose title is always the same.
func titled(title, current string) func(*http.Request) web.Page {
	return func(r *http.Request) web.Page { return page(r, title, current, nil) }
}

// at registers the page at a path, and its stream below /live.
func (v view[T]) at(handlers map[string]web.Handler, path string) {
	handlers["GET "+path] = v.show
	if v.watch != nil {
		handlers["GET /live"+path] = v.follow
	}
}

// show renders the page.
func (v view[T]) show(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	data, err := v.observe(v.read(r)(ctx))
	if err != nil {
		return v.site.unshown(w, kubeproblem.From(err, "reading the cluster"))
	}
	of := v.page(r)
	if of.Data = data; v.watch != nil {
		of.Live = "/live" + r.URL.EscapedPath() + "?" + r.URL.RawQuery
	}
	v.site.pages.Render(w, r, http.StatusOK, v.name, of)
	return nil
}

// unshown returns the error of a page that cannot be read. While the cluster is away, the error
// says since when, and the browser reloads the page: without its first state, a page has no stream.
func (d *site) unshown(w http.ResponseWriter, err error) error {
	if !away(err) {
		return err
	}
	w.Header().Set("Refresh", strconv.Itoa(int(lookAgain/time.Second)))
	p := web.ProblemOf(err)
	return problem.Errorf(p.Code, p.Fix, "%s, since %s; this page tries again by itself", p.Detail, d.since(err).UTC().Format("2006-01-02 15:04:05 UTC"))
}

// follow keeps the page up to date. While it cannot be read, the page stays as it is, with a line
// that says why and since when.
func (v view[T]) follow(w http.ResponseWriter, r *http.Request) error {
	stream, end, err := v.site.streams.Open(w, r)
	if err != nil {
		return err
	}
	defer end()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	of, read := v.page(r), v.read(r)
	var failing time.Time
	_ = stream.Follow(ctx, v.site.cluster.changes(ctx, v.watch(r)...), func() ([]byte, error) {
		reading, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		data, err := v.observe(read(reading))
		if err == nil {
			failing, of.Data, of.Away = time.Time{}, data, nil
			return v.site.whole(r, v.name, of)
		}
		if ctx.Err() != nil {
			return nil, err // the page is closed
		}
		err = kubeproblem.From(err, "reading the cluster")
		if failing.IsZero() {
			failing = v.site.since(err)
		}
		of.Away = &web.Away{Since: failing, Problem: web.ProblemOf(err)}
		return v.site.pages.Status(r, of)
	})
	return nil
}

// whole returns an open page's part, and that it is up to date.
func (d *site) whole(r *http.Request, name string, of web.Page) ([]byte, error) {
	part, err := d.pages.Part(r, name, of)
	if err != nil {
		return nil, err
	}
	status, err := d.pages.Status(r, of)
	return append(part, status...), err
}

// observe passes on what a page has read, and remembers since when the cluster is away.
func (v view[T]) observe(data T, err error) (T, error) {
	v.site.outages.saw(theCluster, away(err))
	return data, err
}

// since returns since when a page cannot be read.
func (d *site) since(err error) time.Time {
	if away(err) {
		return d.outages.saw(theCluster, true)
	}
	return d.opts.Now()
}

// away reports whether the cluster did not respond.
func away(err error) bool {
	if err == nil {
		return false
	}
	code := web.ProblemOf(kubeproblem.From(err, "reading the cluster")).Code
	return code == problem.Unavailable || code == problem.Timeout
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
