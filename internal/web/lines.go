package web

import (
	"bytes"
	"cmp"
	"context"
	"html/template"
	"net/http"
	"sync"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/printable"
)

const (
	// maxFollowed is how many lines one page gets. A browser becomes slow with more.
	maxFollowed = 10000
	// maxBatch is how many lines go into one event, and batchPause how long they are collected.
	maxBatch   = 200
	batchPause = 200 * time.Millisecond
)

// lineText is the template "log-line": one line of a log, of a page and of its stream.
const lineText = `<li data-pod="{{.Pod}}"{{with .Level}} data-level="{{.}}"{{end}}><span class="from">{{.Pod}}</span> {{.Line}}</li>`

var lineHTML = template.Must(template.New("line").Parse(lineText))

// Line is a line of a log.
type Line struct {
	Time      time.Time
	Pod, Line string
}

// Lines sends the lines of a log in batches, until the log or the page ends. The function reads the
// log until ctx ends.
func (s *Stream) Lines(ctx context.Context, read func(ctx context.Context, emit func(Line) error) error) error {
	var reading sync.WaitGroup
	defer reading.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lines := make(chan Line)
	reading.Go(func() {
		defer close(lines)
		_ = read(ctx, func(l Line) error { // the page connects again, and then shows what is wrong
			select {
			case lines <- l:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	})
	return s.sendLines(ctx, lines)
}

// LastLine returns the time of the last line that the page has: the browser names it when it
// connects again, and the page's address before.
func LastLine(r *http.Request) time.Time {
	last, err := time.Parse(time.RFC3339Nano, cmp.Or(r.Header.Get("Last-Event-ID"), r.URL.Query().Get("after")))
	if err != nil {
		return time.Time{}
	}
	return last
}

// LinesAfter returns how many last lines of each pod may follow the last one that the page has, and
// how old they may be. Without such a line, only new ones follow.
func LinesAfter(last, now time.Time, most int) (tail int, since time.Duration) {
	if last.IsZero() {
		return 0, 0
	}
	return most, max(now.Sub(last), time.Second)
}

// sendLines sends lines in batches, until the log or the page ends.
func (s *Stream) sendLines(ctx context.Context, lines <-chan Line) error {
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
				if s.Ping() != nil {
					return nil
				}
			}
		}
		if send {
			if s.Send(last, batch.Bytes()) != nil {
				return nil
			}
			sent, waiting, quiet = sent+waiting, 0, 0
			batch.Reset()
		}
	}
	_ = s.Send(last, []byte(`<li><strong>The page is full. Load it again to go on.</strong></li>`)) // the page may be closed
	<-ctx.Done()                                                                                    // a stream that ends would be opened again
	return nil
}

// quietTicks is after how many pauses without a line the stream shows that it is alive.
const quietTicks = 75
