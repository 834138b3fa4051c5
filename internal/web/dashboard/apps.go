package dashboard

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// pathOf returns the path of an App's page.
func pathOf(a runnerapi.App) string {
	return "/apps/" + url.PathEscape(a.Namespace) + "/" + url.PathEscape(a.Name)
}

// appPages are the pages about Apps.
type appPages struct {
	*site
	history *histories
	samples *samples
}

// listApps returns all Apps that the caller may see, those in trouble first.
func (d *site) listApps(ctx context.Context) ([]runnerapi.App, error) {
	stored, err := d.storedApps(ctx)
	return wireApps(stored), err
}

// storedApps returns all Apps that the caller may see, as the cluster has them.
func (d *site) storedApps(ctx context.Context) ([]v1alpha1.App, error) {
	var list v1alpha1.List
	if err := d.cluster.client.List(ctx, &list); err != nil {
		return nil, kubeproblem.From(err, "listing Apps")
	}
	return list.Items, nil
}

// wireApps returns Apps as Runners see them, those in trouble first.
func wireApps(stored []v1alpha1.App) []runnerapi.App {
	apps := make([]runnerapi.App, 0, len(stored))
	for i := range stored {
		apps = append(apps, stored[i].Wire())
	}
	slices.SortFunc(apps, func(a, b runnerapi.App) int {
		return cmp.Or(cmp.Compare(urgency(a), urgency(b)), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return apps
}

// urgency orders Apps: what does not serve comes first.
func urgency(a runnerapi.App) int {
	i := slices.Index([]runnerapi.Phase{runnerapi.PhaseFailed, runnerapi.PhaseDegraded, runnerapi.PhaseProgressing, runnerapi.PhaseDeleting}, a.Status.Phase)
	if i < 0 {
		return 9
	}
	return i
}

type appsData struct {
	web.Rows[appRow]
	Find   string
	State  string
	States []string // to choose from
	Any    bool     // there are Apps, found or not
}

type appRow struct {
	runnerapi.App
	Path string
	Why  string
}

// states are those of Apps, what is wrong first.
func states() []string {
	return []string{
		string(runnerapi.PhaseFailed), string(runnerapi.PhaseDegraded), string(runnerapi.PhaseProgressing), string(runnerapi.PhasePaused),
		string(runnerapi.PhaseDeleting), string(runnerapi.PhaseHealthy), runnerapi.StateStopped,
	}
}

func (d *appPages) apps() view[appsData] {
	return view[appsData]{
		site: d.site, name: "apps", page: titled("Apps", "/apps"),
		read:  func(r *http.Request) func(context.Context) (appsData, error) { return d.readApps(r.URL.Query()) },
		watch: func(*http.Request) []watched { return []watched{allApps()} },
	}
}

func (d *appPages) readApps(query url.Values) func(context.Context) (appsData, error) {
	return func(ctx context.Context) (appsData, error) {
		apps, err := d.listApps(ctx)
		if err != nil {
			return appsData{}, err
		}
		found := appsData{Find: query.Get("find"), State: query.Get("state"), States: states(), Any: len(apps) > 0}
		rows := []appRow{}
		for _, a := range apps {
			row := appRow{App: a, Path: pathOf(a), Why: a.Status.WaitingFor}
			if g := a.Status.Diagnosis; g != nil {
				row.Why = string(g.Cause) + ": " + g.Message
			}
			if row.matches(found.Find, found.State) {
				rows = append(rows, row)
			}
		}
		found.Rows = web.Paged(rows, query)
		return found, nil
	}
}

func (a appRow) matches(find, state string) bool {
	text := strings.ToLower(a.Namespace + "/" + a.Name + " " + a.Spec.Image + " " + a.Why)
	return strings.Contains(text, strings.ToLower(strings.TrimSpace(find))) && (state == "" || a.State() == state)
}
