package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/pipeops/pipeops-vm-agent/internal/app/revision"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
	"github.com/pipeops/pipeops-vm-agent/internal/web/apppage"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// ownersName is who made a revision that the dashboard made.
const ownersName = "dashboard"

// action is a change of an App: what is asked, and what is done.
type action struct {
	title string
	ask   func(ctx context.Context, d *appPages, a *v1alpha1.App, form url.Values) (web.Question, error)
	do    func(ctx context.Context, d *appPages, key runnerapi.Key, form url.Values) error
}

var actions = map[string]action{
	"start":    {"Start", askStart, scale},
	"stop":     {"Stop", askStop, stop},
	"pause":    {"Pause", askPause, pause},
	"resume":   {"Resume", askResume, resume},
	"delete":   {"Delete", askDelete, remove},
	"restart":  {"Restart", askRestart, restart},
	"scale":    {"Scale", askScale, scale},
	"rollback": {"Roll back", askRollback, rollback},
}

func writeOptions() runnerapi.WriteOptions {
	return runnerapi.WriteOptions{Caller: runnerapi.Caller{Runner: ownersName}}
}

func (d *appPages) askChange(w http.ResponseWriter, r *http.Request) error {
	act, q, err := d.question(r, r.URL.Query())
	if err != nil {
		return err
	}
	d.showQuestion(w, r, http.StatusOK, act, q)
	return nil
}

// question returns what is asked before a change.
func (d *appPages) question(r *http.Request, form url.Values) (action, web.Question, error) {
	key := keyOf(r)
	act, known := actions[r.PathValue("action")]
	if !known {
		return act, web.Question{}, web.NotFound()
	}
	a, err := d.cluster.store.Get(r.Context(), key)
	if err != nil {
		return act, web.Question{}, err
	}
	q, err := act.ask(r.Context(), d, a, form)
	q.Action, q.Back, q.BackText, q.With = r.URL.EscapedPath(), pathOf(a.Wire()), key.String(), "kubectl"
	return act, q, err
}

func (d *appPages) showQuestion(w http.ResponseWriter, r *http.Request, status int, act action, q web.Question) {
	d.pages.Render(w, r, status, "confirm", page(r, act.title+" "+keyOf(r).Name, "/apps", q))
}

func (d *appPages) change(w http.ResponseWriter, r *http.Request) error {
	key, name := keyOf(r), r.PathValue("action")
	act, known := actions[name]
	if !known {
		return web.NotFound()
	}
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	record := runnerapi.AuditRecord{Time: d.opts.Now().UTC(), Command: name + "-app", Namespace: key.Namespace, Name: key.Name}
	err := act.do(ctx, d, key, r.PostForm)
	d.record(ctx, record, err)
	if err != nil {
		return d.askAgain(w, r, err)
	}
	d.opts.Log.Info().Str("app", key.String()).Str("action", name).Msg("App changed")
	back := "/apps"
	if name != "delete" {
		back += "/" + url.PathEscape(key.Namespace) + "/" + url.PathEscape(key.Name)
	}
	http.Redirect(w, r, back+"?done="+name+"-app", http.StatusSeeOther) //nolint:gosec // a path of this server
	return nil
}

// askAgain shows a form again that was refused. It returns an error that is not about the form.
func (d *appPages) askAgain(w http.ResponseWriter, r *http.Request, why error) error {
	act, q, err := d.question(r, r.PostForm)
	if err != nil {
		return why
	}
	q, again := q.Again(r.PostForm, why)
	if !again {
		return why
	}
	d.showQuestion(w, r, q.Problem.Status, act, q)
	return nil
}

func askRestart(_ context.Context, _ *appPages, a *v1alpha1.App, _ url.Values) (web.Question, error) {
	return web.Question{
		Text:    apppage.RestartText,
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

func askScale(_ context.Context, _ *appPages, a *v1alpha1.App, _ url.Values) (web.Question, error) {
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

func askStart(_ context.Context, _ *appPages, a *v1alpha1.App, _ url.Values) (web.Question, error) {
	return web.Question{
		Text: apppage.StartText, Button: "Start", Fields: []web.Field{
			{Kind: "number", Required: true, Name: "replicas", Label: "Number of pods", Min: 1, Max: mostReplicas, Value: "1"},
		},
		Command: fmt.Sprintf("kubectl -n %s scale apps.pipeops.io %s --replicas NUMBER", a.Namespace, a.Name),
	}, nil
}

func askStop(_ context.Context, _ *appPages, a *v1alpha1.App, _ url.Values) (web.Question, error) {
	return web.Question{
		Text: apppage.StopText, Button: "Stop",
		Command: fmt.Sprintf("kubectl -n %s scale apps.pipeops.io %s --replicas 0", a.Namespace, a.Name),
	}, nil
}

func stop(ctx context.Context, d *appPages, key runnerapi.Key, _ url.Values) error {
	_, err := d.cluster.writer.Scale(ctx, key, runnerapi.Scale{Replicas: new(int32(0))}, writeOptions())
	return err
}

func askPause(_ context.Context, _ *appPages, a *v1alpha1.App, _ url.Values) (web.Question, error) {
	return web.Question{Text: apppage.PauseText, Button: "Pause", Command: pauseCommand(a, "true")}, nil
}

func pause(ctx context.Context, d *appPages, key runnerapi.Key, _ url.Values) error {
	_, err := d.cluster.writer.Pause(ctx, key, writeOptions())
	return err
}

func askResume(_ context.Context, _ *appPages, a *v1alpha1.App, _ url.Values) (web.Question, error) {
	return web.Question{Text: apppage.ResumeText, Button: "Resume", Command: pauseCommand(a, "null")}, nil
}

func resume(ctx context.Context, d *appPages, key runnerapi.Key, _ url.Values) error {
	_, err := d.cluster.writer.Resume(ctx, key, writeOptions())
	return err
}

func pauseCommand(a *v1alpha1.App, paused string) string {
	return fmt.Sprintf(`kubectl -n %s patch apps.pipeops.io %s --type merge -p '{"spec":{"paused":%s}}'`, a.Namespace, a.Name, paused)
}

func askDelete(_ context.Context, _ *appPages, a *v1alpha1.App, _ url.Values) (web.Question, error) {
	return web.Question{
		Text: apppage.DeleteText, Button: "Delete", Danger: true, Fields: []web.Field{web.ConfirmField(a.Name)},
		Command: fmt.Sprintf("kubectl -n %s delete apps.pipeops.io %s", a.Namespace, a.Name),
	}, nil
}

// remove deletes the App. The page of Apps shows how far it is.
func remove(ctx context.Context, d *appPages, key runnerapi.Key, form url.Values) error {
	if err := web.Confirmed(form, key.Name); err != nil {
		return err
	}
	_, err := d.cluster.writer.BeginDelete(ctx, key, writeOptions())
	return err
}

func askRollback(ctx context.Context, d *appPages, a *v1alpha1.App, form url.Values) (web.Question, error) {
	to, err := revisionIn(form)
	if err != nil {
		return web.Question{}, err
	}
	n := strconv.FormatInt(to, 10)
	all, err := d.cluster.history.List(ctx, a)
	if err != nil {
		return web.Question{}, err
	}
	target, _ := runnerapi.RollbackTarget(revision.Described(a, all, a.Status.Revision), to) // one that is gone is refused
	return web.Question{
		Caution: target.Caution(),
		Text:    "The spec of revision " + n + " becomes the newest revision. The number of pods stays.",
		Button:  "Roll back to revision " + n, Hidden: []web.Hidden{{Name: "revision", Value: n}},
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
