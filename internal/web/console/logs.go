package console

import (
	"context"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
	"github.com/pipeops/pipeops-vm-agent/internal/web/apppage"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// identifyAgain is how often who follows a log is identified again.
const identifyAgain = 5 * time.Second

// logs is a page that shows the end of a log, and follows it where scripts run.
func (p *appPages) logs(w http.ResponseWriter, r *http.Request) error {
	key := appIn(r.PathValue("name"), r.URL.Query())
	return show(p.site, w, r, "logs", page(r, "Log of "+key.App, "/console/", ""), func(ctx context.Context) (web.LogPage, error) {
		if key.Namespace == "" || key.App == "" {
			return web.LogPage{}, web.NotFound()
		}
		at := agentPath(key.Agent) + "/app/logs"
		data := web.LogPage{
			LogView: web.LogViewOf(r.URL.Query()), Path: at, Download: at + ".txt",
			Hidden: []web.Hidden{{Name: "namespace", Value: key.Namespace}, {Name: "app", Value: key.App}},
			Up:     web.Link{Path: appPath(key), Text: key.Namespace + "/" + key.App},
		}
		live := operatorapi.ConsolePath + "/live/agents/" + url.PathEscape(key.Agent) + "/app/logs"
		err := data.Read(p.opts.Now(), live, func(emit func(web.Line) error) error { return p.readLines(ctx, key, data.LogView, emit) })
		return data, err
	})
}

// readLines reads the end of a log.
func (p *appPages) readLines(ctx context.Context, key operatorapi.AppKey, of web.LogView, emit func(web.Line) error) error {
	opts := runnerapi.LogOptions{Tail: of.Tail, Previous: of.Previous}
	return p.opts.Logs(ctx, operatorapi.AppLog{AppKey: key, LogOptions: opts}, func(l runnerapi.LogLine) error { return emit(apppage.LineOf(l)) })
}

// downloadLog sends the end of a log as a file.
func (p *appPages) downloadLog(w http.ResponseWriter, r *http.Request) error {
	key, of := appIn(r.PathValue("name"), r.URL.Query()), web.LogViewOf(r.URL.Query())
	return of.DownloadLog(calling(r.Context()), w, key.App, func(ctx context.Context, emit func(web.Line) error) error {
		return p.readLines(ctx, key, of, emit)
	})
}

// logsLive sends lines as they are written, from the last one that the page has on. It ends with
// the session, and with the right to act as the Runner.
func (p *appPages) logsLive(w http.ResponseWriter, r *http.Request) error {
	key, of := appIn(r.PathValue("name"), r.URL.Query()), web.LogViewOf(r.URL.Query())
	var identifying sync.WaitGroup
	defer identifying.Wait()
	ctx, cancel := context.WithCancel(calling(r.Context()))
	defer cancel()
	if err := p.opts.ReadsApps(ctx); err != nil {
		return err
	}
	stream, end, err := p.streams.Open(w, r)
	if err != nil {
		return err
	}
	defer end()
	identifying.Go(func() { p.identifyAgain(ctx, cancel) })
	last := web.LastLine(r)
	opts := runnerapi.LogOptions{Follow: true}
	opts.Tail, opts.Since = web.LinesAfter(last, p.opts.Now(), of.Tail)
	return stream.Lines(ctx, func(ctx context.Context, emit func(web.Line) error) error {
		return p.opts.Logs(ctx, operatorapi.AppLog{AppKey: key, LogOptions: opts}, func(l runnerapi.LogLine) error {
			if !l.Time.After(last) || !of.Matches(apppage.LineOf(l)) { // Kubernetes begins at a whole second
				return nil
			}
			return emit(apppage.LineOf(l))
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
