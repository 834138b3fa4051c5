package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// ownersName is who made a revision that the dashboard made.
const ownersName = "dashboard"

// action is a change of an App: what is asked, and what is done.
type action struct {
	title string
	ask   func(a *v1alpha1.App, form url.Values) (web.Question, error)
	do    func(ctx context.Context, d *appPages, key runnerapi.Key, form url.Values) error
}

var actions = map[string]action{
	"restart":  {"Restart", askRestart, restart},
	"scale":    {"Scale", askScale, scale},
	"rollback": {"Roll back", askRollback, rollback},
}

func writeOptions() runnerapi.WriteOptions {
	return runnerapi.WriteOptions{Caller: runnerapi.Caller{Runner: ownersName}}
}

func (d *appPages) askChange(w http.ResponseWriter, r *http.Request) error {
	key := keyOf(r)
	act, known := actions[r.PathValue("action")]
	if !known {
		return web.NotFound()
	}
	a, err := d.cluster.store.Get(r.Context(), key)
	if err != nil {
		return err
	}
	q, err := act.ask(a, r.URL.Query())
	if err != nil {
		return err
	}
	q.Action, q.Back, q.BackText, q.With = r.URL.EscapedPath(), pathOf(a.Wire()), key.String(), "kubectl"
	d.pages.Render(w, r, http.StatusOK, "confirm", page(r, act.title+" "+key.Name, "/apps", q))
	return nil
}

func (d *appPages) change(w http.ResponseWriter, r *http.Request) error {
	key, name := keyOf(r), r.PathValue("action")
	act, known := actions[name]
	if !known {
		return web.NotFound()
	}
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	if err := act.do(ctx, d, key, r.PostForm); err != nil {
		return err
	}
	d.opts.Log.Info().Str("app", key.String()).Str("action", name).Msg("App changed")
	back := "/apps/" + url.PathEscape(key.Namespace) + "/" + url.PathEscape(key.Name)
	http.Redirect(w, r, back+"?done="+name, http.StatusSeeOther) //nolint:gosec // a path of this server
	return nil
}

func askRestart(a *v1alpha1.App, _ url.Values) (web.Question, error) {
	return web.Question{
		Text:    "All pods are replaced, a few at a time. A Job runs again.",
		Button:  "Restart",
		Command: fmt.Sprintf(`kubectl -n %s annotate apps.pipeops.io %s --overwrite pipeops.io/restarted-at="$(date -u +%%FT%%TZ)"`, a.Namespace, a.Name),
	}, nil
}

func restart(ctx context.Context, d *appPages, key runnerapi.Key, _ url.Values) error {
	_, err := d.cluster.writer.Restart(ctx, key, writeOptions())
	return err
}

// mostReplicas is the maximum in the App's schema.
const mostReplicas = 1000

func askScale(a *v1alpha1.App, _ url.Values) (web.Question, error) {
	text := "A new number of pods applies at once. 0 stops the App."
	if a.Autoscaled() {
		text = "A fixed number of pods turns the App's autoscaling off. 0 stops the App."
	}
	return web.Question{
		Text: text, Button: "Scale", Fields: []web.Field{
			{Kind: "number", Required: true, Name: "replicas", Label: "Number of pods", Max: mostReplicas, Value: strconv.Itoa(int(a.Replicas()))},
		},
		Command: fmt.Sprintf("kubectl -n %s scale apps.pipeops.io %s --replicas NUMBER", a.Namespace, a.Name),
	}, nil
}

func scale(ctx context.Context, d *appPages, key runnerapi.Key, form url.Values) error {
	n, err := strconv.ParseInt(form.Get("replicas"), 10, 32)
	if err != nil || n < 0 || n > mostReplicas {
		return problem.Errorf(problem.Invalid, fmt.Sprintf("enter a number from 0 to %d", mostReplicas), "%.20q is not a number of pods", form.Get("replicas"))
	}
	_, err = d.cluster.writer.Scale(ctx, key, runnerapi.Scale{Replicas: new(int32(n))}, writeOptions())
	return err
}

func askRollback(a *v1alpha1.App, form url.Values) (web.Question, error) {
	to, err := revisionIn(form)
	if err != nil {
		return web.Question{}, err
	}
	n := strconv.FormatInt(to, 10)
	return web.Question{
		Text:   "The spec of revision " + n + " becomes the newest revision. The number of pods stays.",
		Button: "Roll back to revision " + n, Hidden: []web.Hidden{{Name: "revision", Value: n}},
		Command: fmt.Sprintf(`kubectl -n %s patch apps.pipeops.io %s --type merge -p "{\"spec\":$(kubectl -n %s get controllerrevision %s.r%s -o jsonpath='{.data}')}"`,
			a.Namespace, a.Name, a.Namespace, a.Name, n),
	}, nil
}

func rollback(ctx context.Context, d *appPages, key runnerapi.Key, form url.Values) error {
	to, err := revisionIn(form)
	if err != nil {
		return err
	}
	_, err = d.cluster.writer.Rollback(ctx, key, runnerapi.RollbackTo{Revision: to}, writeOptions())
	return err
}

func revisionIn(form url.Values) (int64, error) {
	to, err := strconv.ParseInt(form.Get("revision"), 10, 64)
	if err != nil || to < 1 {
		return 0, problem.Errorf(problem.Invalid, "choose a revision on the App's page", "%.20q is not a revision", form.Get("revision"))
	}
	return to, nil
}
