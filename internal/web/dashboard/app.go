package dashboard

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/app/revision"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/app/workload"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const (
	// maxPods and maxLines bound what the page of one App shows.
	maxPods  = 100
	maxLines = 20
)

type appData struct {
	runnerapi.App
	Path      string
	Pods      []podRow
	MorePods  int
	Revisions []runnerapi.Revision
	Lines     []runnerapi.LogLine
	Unread    []*problem.Error
	Usage     usageData
	CanScale  bool
	CanStart  bool // a restart makes sense
}

type podRow struct {
	Name, Node, State string
	Restarts          int32
	Created           time.Time
}

func keyOf(r *http.Request) runnerapi.Key {
	return runnerapi.Key{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
}

func (d *appPages) app() view[appData] {
	return view[appData]{
		site: d.site, name: "app",
		page: func(r *http.Request) web.Page { return page(r, keyOf(r).Name, "/apps", nil) },
		read: func(r *http.Request) func(context.Context) (appData, error) {
			return d.readApp(keyOf(r), r.URL.Query())
		},
		watch: func(r *http.Request) []watched { return ofApp(keyOf(r)) },
	}
}

func (d *appPages) readApp(key runnerapi.Key, query url.Values) func(context.Context) (appData, error) {
	return func(ctx context.Context) (appData, error) {
		a, err := d.cluster.store.Get(ctx, key)
		if err != nil {
			return appData{}, err
		}
		shown := appData{App: a.Wire()}
		shown.Path = pathOf(shown.App)
		shown.CanScale = a.Spec.Type.Scales() && a.DeletionTimestamp.IsZero()
		shown.CanStart = a.Spec.Type != runnerapi.TypeCronJob && a.DeletionTimestamp.IsZero()
		var reading sync.WaitGroup
		reading.Go(func() { shown.Usage = d.usage(ctx, key, query) })
		pods, podsErr := d.cluster.store.Pods(ctx, a)
		shown.addPods(pods)
		lines, linesErr := d.lastLines(ctx, key, len(pods) > 0)
		shown.Lines = lines
		for _, p := range []*problem.Error{unread(podsErr, "reading pods"), unread(d.addRevisions(ctx, a, &shown), "reading revisions"), unread(linesErr, "reading the log")} {
			if p != nil {
				shown.Unread = append(shown.Unread, p)
			}
		}
		reading.Wait()
		return shown, nil
	}
}

func (s *appData) addPods(pods []*corev1.Pod) {
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return b.CreationTimestamp.Compare(a.CreationTimestamp.Time) })
	for _, pod := range pods[:min(len(pods), maxPods)] {
		s.Pods = append(s.Pods, podRowOf(pod))
	}
	s.MorePods = max(len(pods)-maxPods, 0)
}

func podRowOf(pod *corev1.Pod) podRow {
	row := podRow{Name: pod.Name, Node: pod.Spec.NodeName, Created: pod.CreationTimestamp.Time, State: string(pod.Status.Phase)}
	for _, c := range pod.Status.ContainerStatuses {
		row.Restarts += c.RestartCount
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Reason != "":
			row.State = c.State.Waiting.Reason
		case c.State.Terminated != nil && c.State.Terminated.Reason != "":
			row.State = c.State.Terminated.Reason
		}
	}
	switch {
	case pod.DeletionTimestamp != nil:
		row.State = "Terminating"
	case workload.PodReady(pod):
		row.State = "Ready"
	}
	return row
}

// addRevisions reads the revisions and stores none: only a change does.
func (d *appPages) addRevisions(ctx context.Context, a *v1alpha1.App, shown *appData) error {
	all, err := d.cluster.history.List(ctx, a)
	for i := range all {
		r := revision.Describe(&all[i])
		r.Current, r.Healthy = r.Revision == a.Status.Revision, slices.Contains(a.Status.Healthy, r.Revision)
		shown.Revisions = append(shown.Revisions, r)
	}
	slices.Reverse(shown.Revisions)
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
