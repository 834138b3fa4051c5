package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
	"github.com/pipeops/pipeops-vm-agent/internal/web/apppage"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// runnerProgram is what equivalent command lines about Apps are for.
const runnerProgram = "pipeops-runner"

// mostReplicas is the maximum in the App's schema.
const mostReplicas = 1000

// appIn returns the App that a query or a form names, of the agent in the path.
func appIn(agent string, values url.Values) operatorapi.AppKey {
	return operatorapi.AppKey{Agent: agent, Namespace: values.Get("namespace"), App: values.Get("app")}
}

// appPath returns the path of an App's page, with its query.
func appPath(k operatorapi.AppKey) string {
	return operatorapi.ConsolePath + controlapi.AppPage(k.Agent, k.Namespace, k.App)
}

// belowApp returns the path of a page below an App's, with its query.
func belowApp(k operatorapi.AppKey, below string) string {
	return agentPath(k.Agent) + "/app" + below + "?" + appQuery(k)
}

func appQuery(k operatorapi.AppKey) string {
	return url.Values{"namespace": {k.Namespace}, "app": {k.App}}.Encode()
}

// appPages are the pages about an App.
type appPages struct{ *site }

func (p *appPages) app(w http.ResponseWriter, r *http.Request) error {
	key := appIn(r.PathValue("name"), r.URL.Query())
	live := operatorapi.ConsolePath + "/live/agents/" + url.PathEscape(key.Agent) + "/app?" + appQuery(key)
	return show(p.site, w, r, "app", page(r, key.App, "/console/", live), p.readApp(key))
}

func (p *appPages) appLive(w http.ResponseWriter, r *http.Request) error {
	return follow(p.site, w, r, "app", p.readApp(appIn(r.PathValue("name"), r.URL.Query())))
}

func (p *appPages) readApp(key operatorapi.AppKey) func(context.Context) (apppage.Data, error) {
	return func(ctx context.Context) (apppage.Data, error) {
		if key.Namespace == "" || key.App == "" {
			return apppage.Data{}, web.NotFound()
		}
		found, err := operatorapi.GetApp.Do(ctx, p.opts.API, operatorapi.GetAppInput{AppKey: key})
		return appPage(key, found), err
	}
}

// appPage returns the page of an App with what the operators can do with it.
func appPage(key operatorapi.AppKey, found operatorapi.AppDetail) apppage.Data {
	shown := apppage.Data{
		App: found.App, Runner: found.Runner, Revisions: found.Revisions,
		Up:  web.Link{Path: agentPath(key.Agent), Text: found.AgentName},
		Log: belowApp(key, "/logs"), LogBefore: belowApp(key, "/logs") + "&previous=true",
		Rollback: web.Link{Path: belowApp(key, "/rollback") + "&revision=", Text: "Roll back", Needs: operatorapi.RollbackApp.ID},
		Actions:  []web.Link{{Path: agentPath(key.Agent) + "/deploy?" + appQuery(key), Text: "Change", Needs: operatorapi.DeployApp.ID}},
	}
	shown.Source = apppage.NewSource(found.Source)
	if found.Traffic != nil {
		shown.Visitors = apppage.VisitorsOf(*found.Traffic)
	}
	shown.Add(func(name, text string) web.Link {
		at := belowApp(key, "/"+name)
		if name == "scale" {
			at += "&replicas=" + strconv.Itoa(int(found.Status.DesiredReplicas))
		}
		return web.Link{Path: at, Text: text, Needs: appChanges["/agents/{name}/app/"+name].call}
	})
	return shown
}

// appChanges are those that the agent carries out for the Runner as which the operator acts.
var appChanges = map[string]change{
	"/agents/{name}/app/restart": {
		call: operatorapi.RestartApp.ID, title: "Restart {app} of {name}", page: "/console/", agent: true, acts: true,
		ask: func(name string, query url.Values) web.Question {
			return appQuestion(name, query, "restart", nil, web.Question{
				Text: apppage.RestartText, Button: "Restart",
			})
		},
		do: func(ctx context.Context, t operatorapi.Target, f form) (outcome, error) {
			key := appIn(f.name, f.values)
			_, err := operatorapi.RestartApp.Do(ctx, t, operatorapi.AppInput{Write: f.write(), AppKey: key})
			return outcome{to: appPath(key), done: "restart-app"}, err
		},
	},
	"/agents/{name}/app/scale": {
		call: operatorapi.ScaleApp.ID, title: "Scale {app} of {name}", page: "/console/", agent: true, acts: true,
		ask: func(name string, query url.Values) web.Question {
			return appQuestion(name, query, "scale", []string{"--replicas", "NUMBER"}, web.Question{
				Text: "A fixed number of pods applies at once, and turns autoscaling off. 0 stops the App.", Button: "Scale",
				Fields: []web.Field{{Kind: "number", Name: "replicas", Label: "Number of pods", Max: mostReplicas, Value: query.Get("replicas"), Required: true}},
			})
		},
		do: func(ctx context.Context, t operatorapi.Target, f form) (outcome, error) {
			return scaleApp(ctx, t, f, "scale-app")
		},
	},
	"/agents/{name}/app/start": {
		call: operatorapi.ScaleApp.ID, title: "Start {app} of {name}", page: "/console/", agent: true, acts: true,
		ask: func(name string, query url.Values) web.Question {
			return appQuestion(name, query, "scale", []string{"--replicas", "NUMBER"}, web.Question{
				Text: apppage.StartText, Button: "Start",
				Fields: []web.Field{{Kind: "number", Name: "replicas", Label: "Number of pods", Min: 1, Max: mostReplicas, Value: "1", Required: true}},
			})
		},
		do: func(ctx context.Context, t operatorapi.Target, f form) (outcome, error) {
			return scaleApp(ctx, t, f, "scale-app")
		},
	},
	"/agents/{name}/app/stop": {
		call: operatorapi.ScaleApp.ID, title: "Stop {app} of {name}", page: "/console/", agent: true, acts: true,
		ask: func(name string, query url.Values) web.Question {
			return appQuestion(name, query, "scale", []string{"--replicas", "0"}, web.Question{
				Text: apppage.StopText, Button: "Stop", Hidden: []web.Hidden{{Name: "replicas", Value: "0"}},
			})
		},
		do: func(ctx context.Context, t operatorapi.Target, f form) (outcome, error) {
			return scaleApp(ctx, t, f, "stop-app")
		},
	},
	"/agents/{name}/app/pause":  pauses(&operatorapi.PauseApp, "pause", "Pause", apppage.PauseText),
	"/agents/{name}/app/resume": pauses(&operatorapi.ResumeApp, "resume", "Resume", apppage.ResumeText),
	"/agents/{name}/app/delete": {
		call: operatorapi.DeleteApp.ID, title: "Delete {app} of {name}", page: "/console/", agent: true, acts: true,
		ask: func(name string, query url.Values) web.Question {
			return appQuestion(name, query, "delete", nil, web.Question{
				Text: apppage.DeleteText, Button: "Delete", Danger: true, Fields: []web.Field{web.ConfirmField(query.Get("app"))},
			})
		},
		do: func(ctx context.Context, t operatorapi.Target, f form) (outcome, error) {
			key := appIn(f.name, f.values)
			if err := web.Confirmed(f.values, key.App); err != nil {
				return outcome{}, err
			}
			_, err := operatorapi.DeleteApp.Do(ctx, t, operatorapi.AppInput{Write: f.write(), AppKey: key})
			return outcome{to: agentPath(key.Agent), done: "delete-app"}, err
		},
	},
	"/agents/{name}/app/rollback": {
		call: operatorapi.RollbackApp.ID, title: "Roll back {app} of {name}", page: "/console/", agent: true, acts: true,
		askOf: askRollback,
		do: func(ctx context.Context, t operatorapi.Target, f form) (outcome, error) {
			key := appIn(f.name, f.values)
			to, err := f.number("revision")
			if err != nil {
				return outcome{}, err
			}
			_, err = operatorapi.RollbackApp.Do(ctx, t, operatorapi.RollbackAppInput{
				Write: f.write(), AppKey: key, Body: operatorapi.RollbackAppBody{Revision: int64(to)},
			})
			return outcome{to: appPath(key), done: "rollback-app"}, err
		},
	},
}

// scaleApp sets the number of pods that a form names.
func scaleApp(ctx context.Context, t operatorapi.Target, f form, done string) (outcome, error) {
	key := appIn(f.name, f.values)
	n, err := f.number("replicas")
	if err != nil {
		return outcome{}, err
	}
	if n < 0 || n > mostReplicas {
		return outcome{}, problem.Errorf(problem.Invalid, fmt.Sprintf("enter a number from 0 to %d", mostReplicas), "replicas: %d is not a number of pods", n)
	}
	_, err = operatorapi.ScaleApp.Do(ctx, t, operatorapi.ScaleAppInput{
		Write: f.write(), AppKey: key, Body: operatorapi.ScaleAppBody{Replicas: int32(n)},
	})
	return outcome{to: appPath(key), done: done}, err
}

// pauses returns the change that pauses or resumes an App.
func pauses(call *operatorapi.Call[operatorapi.AppInput, runnerapi.App], name, title, text string) change {
	return change{
		call: call.ID, title: title + " {app} of {name}", page: "/console/", agent: true, acts: true,
		ask: func(agent string, query url.Values) web.Question {
			return appQuestion(agent, query, name, nil, web.Question{Text: text, Button: title})
		},
		do: func(ctx context.Context, t operatorapi.Target, f form) (outcome, error) {
			key := appIn(f.name, f.values)
			_, err := call.Do(ctx, t, operatorapi.AppInput{Write: f.write(), AppKey: key})
			return outcome{to: appPath(key), done: name + "-app"}, err
		},
	}
}

func askRollback(ctx context.Context, t operatorapi.Target, agent string, query url.Values) (web.Question, error) {
	to, err := strconv.ParseInt(query.Get("revision"), 10, 64)
	if err != nil {
		to = 1
	}
	var target runnerapi.Revision
	if found, err := operatorapi.GetApp.Do(ctx, t, operatorapi.GetAppInput{AppKey: appIn(agent, query)}); err == nil { // the rollback itself says why not
		target, _ = runnerapi.RollbackTarget(found.Revisions, to)
	}
	n := strconv.FormatInt(to, 10)
	return appQuestion(agent, query, "rollback", []string{"--to", n}, web.Question{
		Text: "The spec of revision " + n + " becomes the newest revision. The number of pods stays.", Caution: target.Caution(),
		Button: "Roll back to revision " + n, Hidden: []web.Hidden{{Name: "revision", Value: n}},
	}), nil
}

// appQuestion adds to a question what it is about.
func appQuestion(agent string, query url.Values, command string, flags []string, q web.Question) web.Question {
	key := appIn(agent, query)
	q.With = runnerProgram
	q.Command = web.CommandLine(runnerProgram+" "+command, append([]string{agent, key.App, "-n", key.Namespace}, flags...)...)
	q.Hidden = append(q.Hidden, web.Hidden{Name: "namespace", Value: key.Namespace}, web.Hidden{Name: "app", Value: key.App})
	q.Back, q.BackText = appPath(key), key.Namespace+"/"+key.App
	return q
}
