package dashboard

import (
	"bytes"
	"cmp"
	"context"
	"html/template"
	"net/http"
	"net/url"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const (
	// logTail is how many lines of each pod a log begins with.
	logTail = 200
	// maxFollowed is how many lines one page gets. A browser becomes slow with more.
	maxFollowed = 10000
	// maxBatch is how many lines go into one event, and batchPause how long they are collected.
	maxBatch   = 200
	batchPause = 200 * time.Millisecond
)

type logsData struct {
	Key      runnerapi.Key
	Path     string
	Previous bool
	Lines    []runnerapi.LogLine
	Live     string // path of the lines that follow; empty for none
}

// logs is a page that shows the end of a log, and follows it where scripts run.
func (d *Dashboard) logs(w http.ResponseWriter, r *http.Request) error {
	key := keyOf(r)
	path := "/apps/" + key.Namespace + "/" + key.Name
	previous := r.URL.Query().Get("previous") == "true"
	return show(d, w, r, "logs", page(r, "Log of "+key.Name, "/apps", "", nil), func(ctx context.Context) (logsData, error) {
		data := logsData{Key: key, Path: path, Previous: previous}
		last := d.opts.Now()
		err := d.cluster.logs.Logs(ctx, key, runnerapi.LogOptions{Tail: logTail, Previous: previous}, func(l runnerapi.LogLine) error {
			data.Lines, last = append(data.Lines, l), l.Time
			return nil
		})
		if !previous {
			data.Live = "/live" + r.URL.EscapedPath() + "?" + url.Values{"after": {last.Format(time.RFC3339Nano)}}.Encode()
		}
		return data, err
	})
}

// lineHTML is one line of a log, as the page's template has it.
var lineHTML = template.Must(template.New("line").Parse(`<li><span class="from">{{.Pod}}</span> {{.Line}}</li>`))

// logsLive sends lines as they are written, from the last one that the page has on.
func (d *Dashboard) logsLive(w http.ResponseWriter, r *http.Request) error {
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
	lines := make(chan runnerapi.LogLine)
	go func() {
		defer close(lines)
		last := lastOf(r)
		_ = d.cluster.logs.Logs(ctx, key, logOptions(last, d.opts.Now()), func(l runnerapi.LogLine) error {
			if !l.Time.After(last) {
				return nil // Kubernetes begins at a whole second
			}
			select {
			case lines <- l:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	return sendLines(ctx, stream, lines)
}

// lastOf returns the time of the last line that the page has: the browser names it when it connects
// again, and the page's address before.
func lastOf(r *http.Request) time.Time {
	last, err := time.Parse(time.RFC3339Nano, cmp.Or(r.Header.Get("Last-Event-ID"), r.URL.Query().Get("after")))
	if err != nil {
		return time.Time{}
	}
	return last
}

// logOptions begins with lines that may follow the last one, or with no line.
func logOptions(last, now time.Time) runnerapi.LogOptions {
	opts := runnerapi.LogOptions{Follow: true}
	if !last.IsZero() {
		opts.Tail, opts.Since = logTail, max(now.Sub(last), time.Second)
	}
	return opts
}

// sendLines sends lines in batches, until the log or the page ends.
func sendLines(ctx context.Context, stream *web.Stream, lines <-chan runnerapi.LogLine) error {
	flush := time.NewTicker(batchPause)
	defer flush.Stop()
	var batch bytes.Buffer
	waiting, sent, last, quiet := 0, 0, "", 0
	for sent < maxFollowed {
		var send bool
		select {
		case <-ctx.Done():
			return nil
		case l, more := <-lines:
			if !more {
				return nil
			}
			l.Line = printable.Text(l.Line)
			if err := lineHTML.Execute(&batch, l); err != nil {
				return err
			}
			waiting, last = waiting+1, l.Time.Format(time.RFC3339Nano)
			send = waiting >= maxBatch
		case <-flush.C:
			send = waiting > 0
			if quiet++; quiet >= quietTicks && !send {
				quiet = 0
				if stream.Ping() != nil {
					return nil
				}
			}
		}
		if send {
			if stream.Send(last, batch.Bytes()) != nil {
				return nil
			}
			sent, waiting, quiet = sent+waiting, 0, 0
			batch.Reset()
		}
	}
	_ = stream.Send(last, []byte(`<li><strong>The page is full. Load it again to go on.</strong></li>`)) // the page may be closed
	<-ctx.Done()                                                                                         // a stream that ends would be opened again
	return nil
}

// quietTicks is after how many pauses without a line the stream shows that it is alive.
const quietTicks = 75
