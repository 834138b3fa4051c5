package dashboard

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/app/revision"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/source"
	"github.com/pipeops/pipeops-vm-agent/internal/traffic"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
	"github.com/pipeops/pipeops-vm-agent/internal/web/apppage"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// maxPods, maxWarnings and maxLines bound what the page of one App shows.
const (
	maxPods     = 100
	maxWarnings = 10
	maxLines    = 20
)

func keyOf(r *http.Request) runnerapi.Key {
	return runnerapi.Key{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
}

func (d *appPages) app() view[apppage.Data] {
	return view[apppage.Data]{
		site: d.site, name: "app",
		page: func(r *http.Request) web.Page { return page(r, keyOf(r).Name, "/apps", nil) },
		read: func(r *http.Request) func(context.Context) (apppage.Data, error) {
			return d.readApp(keyOf(r), r.URL.Query())
		},
		watch: func(r *http.Request) []watched { return ofApp(keyOf(r)) },
	}
}

func (d *appPages) readApp(key runnerapi.Key, query url.Values) func(context.Context) (apppage.Data, error) {
	return func(ctx context.Context) (apppage.Data, error) {
		a, err := d.cluster.store.Get(ctx, key)
		if err != nil {
			return apppage.Data{}, err
		}
		shown := appPage(a.Wire())
		inside := &apppage.Inside{}
		shown.Inside = inside
		var reading sync.WaitGroup
		reading.Go(func() { inside.Usage = d.usage(ctx, key, query) })
		pods, podsErr := d.cluster.store.Pods(ctx, a)
		addPods(inside, pods)
		warnings, warningsErr := d.warnings(ctx, key.Namespace, pods)
		inside.Warnings = warnings
		visitors, visitorsErr := d.visitors(ctx, a.Wire())
		shown.Visitors = visitors
		sources, sourcesErr := source.List(ctx, d.cluster.client, key.Namespace)
		if meta.IsNoMatchError(sourcesErr) || apierrors.IsNotFound(sourcesErr) {
			sourcesErr = nil // the agent follows no repositories
		}
		shown.Source = apppage.NewSource(runnerapi.SourceOf(key.Name, sources))
		lines, linesErr := d.lastLines(ctx, key, len(pods) > 0)
		inside.Lines = lines
		for _, p := range []*problem.Error{unread(podsErr, "reading pods"), unread(sourcesErr, "reading Git sources"), unread(warningsErr, "reading events"), unread(d.addRevisions(ctx, a, &shown), "reading revisions"), unread(linesErr, "reading the log"), unread(visitorsErr, "reading what visitors requested")} {
			if p != nil {
				shown.Unread = append(shown.Unread, p)
			}
		}
		reading.Wait()
		return shown, nil
	}
}

// visitors returns what visitors of an App requested, by what the agent shares once a minute.
func (d *appPages) visitors(ctx context.Context, a runnerapi.App) (*apppage.Visitors, error) {
	if a.Spec.Ingress == nil || d.cluster.shares == nil {
		return nil, nil //nolint:nilnil // it has no visitors
	}
	all, err := d.cluster.shares(ctx)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return apppage.VisitorsOf(traffic.Report(traffic.Read(all, now, d.opts.Log), traffic.App{Namespace: a.Namespace, Name: a.Name}, traffic.Hour, now)), nil
}

// appPage returns the page of an App with what can be done with it.
func appPage(a runnerapi.App) apppage.Data {
	path := pathOf(a)
	shown := apppage.Data{
		App: a, Up: web.Link{Path: "/apps", Text: "Apps"}, Log: path + "/logs", LogBefore: path + "/logs?previous=true",
		Rollback: web.Link{Path: path + "/rollback?revision=", Text: "Roll back"},
	}
	shown.Add(func(name, text string) web.Link { return web.Link{Path: path + "/" + name, Text: text} })
	return shown
}

// addRevisions reads the revisions and stores none: only a change does.
func (d *appPages) addRevisions(ctx context.Context, a *v1alpha1.App, shown *apppage.Data) error {
	all, err := d.cluster.history.List(ctx, a)
	shown.Revisions = revision.Described(a, all, a.Status.Revision)
	return err
}

// lastLines returns the newest lines of the App's log.
func (d *appPages) lastLines(ctx context.Context, key runnerapi.Key, any bool) (lines []runnerapi.LogLine, err error) {
	if !any {
		return nil, nil
	}
	err = d.cluster.logs.Logs(ctx, key, runnerapi.LogOptions{Tail: maxLines}, func(l runnerapi.LogLine) error {
		lines = append(lines, l)
		return nil
	})
	slices.SortStableFunc(lines, func(a, b runnerapi.LogLine) int { return cmp.Compare(a.Time.UnixNano(), b.Time.UnixNano()) })
	return lines[max(len(lines)-maxLines, 0):], err
}
