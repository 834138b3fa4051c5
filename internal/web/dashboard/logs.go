package dashboard

import (
	"context"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/pipeops/pipeops-vm-agent/internal/web"
	"github.com/pipeops/pipeops-vm-agent/internal/web/apppage"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// logs is a page that shows the end of a log, and follows it where scripts run. Its stream has
// lines and no part of the page, so it is none of view's.
func (d *appPages) logs() view[web.LogPage] {
	return view[web.LogPage]{
		site: d.site, name: "logs",
		page: func(r *http.Request) web.Page { return page(r, "Log of "+keyOf(r).Name, "/apps", nil) },
		read: d.readLog,
	}
}

func (d *appPages) readLog(r *http.Request) func(context.Context) (web.LogPage, error) {
	return func(ctx context.Context) (web.LogPage, error) {
		key, path := keyOf(r), r.URL.EscapedPath()
		data := web.LogPage{
			LogView: web.LogViewOf(r.URL.Query()), Path: path, Download: path + ".txt",
			Up: web.Link{Path: strings.TrimSuffix(path, "/logs"), Text: key.String()},
		}
		err := data.Read(d.opts.Now(), "/live"+path, func(emit func(web.Line) error) error {
			return d.readLines(ctx, key, data.LogView, emit)
		})
		return data, err
	}
}

// readLines reads the end of a log.
func (d *appPages) readLines(ctx context.Context, key runnerapi.Key, of web.LogView, emit func(web.Line) error) error {
	return d.cluster.logs.Logs(ctx, key, runnerapi.LogOptions{Tail: of.Tail, Previous: of.Previous}, func(l runnerapi.LogLine) error {
		return emit(apppage.LineOf(l))
	})
}

// downloadLog sends the end of a log as a file.
func (d *appPages) downloadLog(w http.ResponseWriter, r *http.Request) error {
	key, of := keyOf(r), web.LogViewOf(r.URL.Query())
	return of.DownloadLog(r.Context(), w, key.Name, func(ctx context.Context, emit func(web.Line) error) error {
		return d.readLines(ctx, key, of, emit)
	})
}

// logsLive sends lines as they are written, from the last one that the page has on.
func (d *appPages) logsLive(w http.ResponseWriter, r *http.Request) error {
	key, of := keyOf(r), web.LogViewOf(r.URL.Query())
	stream, end, err := d.streams.Open(w, r)
	if err != nil {
		return err
	}
	defer end()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	notify := func(watch.Event) { d.cluster.store.Notify(key) }
	all := ofApp(key)
	for i := range all {
		all[i].seen = notify
	}
	d.cluster.changes(ctx, all...)
	last := web.LastLine(r)
	opts := runnerapi.LogOptions{Follow: true}
	opts.Tail, opts.Since = web.LinesAfter(last, d.opts.Now(), of.Tail)
	return stream.Lines(ctx, func(ctx context.Context, emit func(web.Line) error) error {
		return d.cluster.logs.Logs(ctx, key, opts, func(l runnerapi.LogLine) error {
			if !l.Time.After(last) || !of.Matches(apppage.LineOf(l)) { // Kubernetes begins at a whole second
				return nil
			}
			return emit(apppage.LineOf(l))
		})
	})
}
