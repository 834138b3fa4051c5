package console

import (
	"context"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const (
	// logTail is how many lines of each pod a log begins with.
	logTail = 200
	// identifyAgain is how often who follows a log is identified again.
	identifyAgain = 5 * time.Second
)

type logsData struct {
	Key      operatorapi.AppKey
	Previous bool
	Lines    []runnerapi.LogLine
	Live     string // path of the lines that follow; empty for none
}

// logs is a page that shows the end of a log, and follows it where scripts run.
func (p *appPages) logs(w http.ResponseWriter, r *http.Request) error {
	key := appIn(r.PathValue("name"), r.URL.Query())
	previous := r.URL.Query().Get("previous") == "true"
	return show(p.site, w, r, "logs", page(r, "Log of "+key.App, "/console/", ""), func(ctx context.Context) (logsData, error) {
		if key.Namespace == "" || key.App == "" {
			return logsData{}, web.NotFound()
		}
		data, last := logsData{Key: key, Previous: previous}, p.opts.Now()
		err := p.opts.Logs(ctx, operatorapi.AppLog{AppKey: key, LogOptions: runnerapi.LogOptions{Tail: logTail, Previous: previous}}, func(l runnerapi.LogLine) error {
			data.Lines, last = append(data.Lines, l), l.Time
			return nil
		})
		if !previous {
			data.Live = operatorapi.ConsolePath + "/live/agents/" + url.PathEscape(key.Agent) + "/app/logs?" + appQuery(key) + "&" +
				url.Values{"after": {last.Format(time.RFC3339Nano)}}.Encode()
		}
		return data, err
	})
}

// logsLive sends lines as they are written, from the last one that the page has on. It ends with
// the session, and with the right to act as the Runner.
func (p *appPages) logsLive(w http.ResponseWriter, r *http.Request) error {
	key := appIn(r.PathValue("name"), r.URL.Query())
	var identifying sync.WaitGroup
	defer identifying.Wait()
	ctx, cancel := context.WithCancel(calling(r.Context()))
	defer cancel()
	if err := p.opts.ReadsApps(ctx); err != nil {
		return err
	}
	stream, end, err := p.streams.Open(w)
	if err != nil {
		return err
	}
	defer end()
	identifying.Go(func() { p.identifyAgain(ctx, cancel) })
	last := web.LastLine(r)
	opts := runnerapi.LogOptions{Follow: true}
	opts.Tail, opts.Since = web.LinesAfter(last, p.opts.Now(), logTail)
	return stream.Lines(ctx, func(ctx context.Context, emit func(web.Line) error) error {
		return p.opts.Logs(ctx, operatorapi.AppLog{AppKey: key, LogOptions: opts}, func(l runnerapi.LogLine) error {
			if !l.Time.After(last) {
				return nil // Kubernetes begins at a whole second
			}
			return emit(web.Line(l))
		})
	})
}

// identifyAgain ends what a caller follows, once the caller may not do that any more.
func (p *appPages) identifyAgain(ctx context.Context, end func()) {
	tick := time.NewTicker(identifyAgain)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if p.opts.ReadsApps(ctx) != nil {
				end()
				return
			}
		}
	}
}
