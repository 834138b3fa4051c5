package dashboard

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/pipeops/pipeops-vm-agent/internal/web"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// logTail is how many lines of each pod a log begins with.
const logTail = 200

type logsData struct {
	Key      runnerapi.Key
	Path     string
	Previous bool
	Lines    []runnerapi.LogLine
	Live     string // path of the lines that follow; empty for none
}

// logs is a page that shows the end of a log, and follows it where scripts run. Its stream has
// lines and no part of the page, so it is none of view's.
func (d *appPages) logs() view[logsData] {
	return view[logsData]{
		site: d.site, name: "logs",
		page: func(r *http.Request) web.Page { return page(r, "Log of "+keyOf(r).Name, "/apps", nil) },
		read: d.readLog,
	}
}

func (d *appPages) readLog(r *http.Request) func(context.Context) (logsData, error) {
	return func(ctx context.Context) (logsData, error) {
		key := keyOf(r)
		data := logsData{Key: key, Path: "/apps/" + key.Namespace + "/" + key.Name, Previous: r.URL.Query().Get("previous") == "true"}
		last := d.opts.Now()
		err := d.cluster.logs.Logs(ctx, key, runnerapi.LogOptions{Tail: logTail, Previous: data.Previous}, func(l runnerapi.LogLine) error {
			data.Lines, last = append(data.Lines, l), l.Time
			return nil
		})
		if !data.Previous {
			data.Live = "/live" + r.URL.EscapedPath() + "?" + url.Values{"after": {last.Format(time.RFC3339Nano)}}.Encode()
		}
		return data, err
	}
}

// logsLive sends lines as they are written, from the last one that the page has on.
func (d *appPages) logsLive(w http.ResponseWriter, r *http.Request) error {
	key := keyOf(r)
	stream, end, err := d.streams.Open(w)
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
	opts.Tail, opts.Since = web.LinesAfter(last, d.opts.Now(), logTail)
	return stream.Lines(ctx, func(ctx context.Context, emit func(web.Line) error) error {
		return d.cluster.logs.Logs(ctx, key, opts, func(l runnerapi.LogLine) error {
			if !l.Time.After(last) {
				return nil // Kubernetes begins at a whole second
			}
			return emit(web.Line(l))
		})
	})
}
