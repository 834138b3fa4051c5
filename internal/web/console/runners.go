package console

import (
	"context"
	"net/http"
	"net/url"

	"github.com/pipeops/pipeops-vm-agent/internal/appform"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
)

const runnersPath = operatorapi.ConsolePath + "/runners"

type runnerRow struct {
	operatorapi.Runner
	State string
}

func (p *accessPages) runners(w http.ResponseWriter, r *http.Request) error {
	return show(p.site, w, r, "runners", page(r, "Runners", runnersPath, ""), func(ctx context.Context) (web.Rows[runnerRow], error) {
		list, err := operatorapi.ListRunners.Do(ctx, p.opts.API, struct{}{})
		rows := make([]runnerRow, len(list.Items))
		for i, runner := range list.Items {
			rows[i] = runnerRow{runner, runner.State(p.opts.Now())}
		}
		return web.Paged(rows, r.URL.Query()), err
	})
}

func runnerQuestion(q web.Question) web.Question {
	q.Back, q.BackText = runnersPath, "Runners"
	return q
}

// fieldFrom is the grant that the page showed.
const fieldFrom = "from"

var grantField = web.Field{
	Kind: "text", Name: "agents", Label: "Agents that the Runner may see and reach",
	Hint: "A label selector, such as env=prod,region in (eu,us). Empty for all agents.",
}

var runnerChanges = map[string]change{
	"/runners/new": {
		call: operatorapi.CreateRunner.ID, title: "Create a Runner", page: runnersPath,
		ask: func(string, url.Values) web.Question {
			return runnerQuestion(web.Question{
				Text:   "The next page has the Runner's credentials or, with an issuer, the variables of its jobs. Anyone who has the credentials commands the agents that the Runner may reach, as far as each cluster's policy allows.",
				Button: "Create the Runner", Command: program + " runner create NAME -o NAME.json --agents SELECTOR",
				Fields: []web.Field{
					{Kind: "text", Name: "name", Label: "Name", Required: true, Hint: "a-z, 0-9 and '-'."}, grantField,
					{Kind: "text", Name: "ttl", Label: "Each certificate lasts", Hint: "Such as 24h, which is the default. The Runner renews it by itself."},
					{Kind: "text", Name: "issuer", Label: "Issuer of ID tokens", Hint: "For a CI job without stored credentials, such as https://token.actions.githubusercontent.com."},
					{Kind: "text", Name: "claims", Label: "Claims that the ID tokens must have", Hint: "With an issuer, such as repository=shop/web environment=prod."},
				},
			})
		},
		do: func(ctx context.Context, t operatorapi.Target, f form) (outcome, error) {
			ttl, err := f.duration("ttl")
			if err != nil {
				return outcome{}, err
			}
			body := operatorapi.CreateRunnerBody{Name: f.text("name"), TTL: ttl, Agents: f.text("agents")}
			if body.OpenID, err = bindingOf(f); err != nil {
				return outcome{}, err
			}
			made, err := operatorapi.CreateRunner.Do(ctx, t, operatorapi.CreateRunnerInput{Write: f.write(), Body: body})
			return madeRunner(f.text("name"), made, err)
		},
	},
	"/runners/{name}/grant": {
		call: operatorapi.GrantRunner.ID, title: "Change the grant of {name}", page: runnersPath,
		ask: func(name string, query url.Values) web.Question {
			field := grantField
			field.Value = query.Get("agents")
			q := runnerQuestion(web.Question{
				Text:   "The Runner gets new credentials, and its old ones end.",
				Button: "Change the grant", Command: web.CommandLine(program+" runner grant", name, "--agents", "SELECTOR", "-o", name+".json"), Fields: []web.Field{field},
			})
			if query.Has("agents") {
				q.Hidden = []web.Hidden{{Name: fieldFrom, Value: field.Value}}
			}
			return q
		},
		do: func(ctx context.Context, t operatorapi.Target, f form) (outcome, error) {
			made, err := operatorapi.GrantRunner.Do(ctx, t, operatorapi.GrantRunnerInput{Write: f.write(), Runner: f.name, Body: operatorapi.GrantRunnerBody{Agents: f.text("agents"), From: f.sent(fieldFrom)}})
			return madeRunner(f.name, made, err)
		},
	},
	"/runners/{name}/revoke": {
		call: operatorapi.RevokeRunner.ID, title: "Revoke {name}", page: runnersPath,
		ask: func(name string, _ url.Values) web.Question {
			return runnerQuestion(web.Question{
				Text:   "The control plane and every agent refuse the Runner. What it deployed runs on.",
				Button: "Revoke the Runner", Danger: true, Command: web.CommandLine(program+" runner revoke", name),
			})
		},
		do: func(ctx context.Context, t operatorapi.Target, f form) (outcome, error) {
			_, err := operatorapi.RevokeRunner.Do(ctx, t, operatorapi.RunnerInput{Write: f.write(), Runner: f.name})
			return outcome{to: runnersPath, done: "revoke-runner"}, err
		},
	},
}

// bindingOf returns the ID tokens to which a Runner is to be bound; nil for none.
func bindingOf(f form) (*operatorapi.BindingBody, error) {
	if f.text("issuer") == "" && f.text("claims") == "" {
		return nil, nil
	}
	claims, err := operatorapi.ParseClaims(appform.Words(f.text("claims")))
	if err != nil {
		return nil, problem.Errorf(problem.Invalid, "write NAME=VALUE, such as repository=shop/web", "claims: %s", err.Error())
	}
	return &operatorapi.BindingBody{Issuer: f.text("issuer"), Claims: claims}, nil
}

func madeRunner(name string, c operatorapi.MadeRunner, err error) (outcome, error) {
	if err != nil {
		return outcome{}, err
	}
	if c.OpenID != nil {
		return outcome{made: &made{
			Text:  "The Runner has no credentials. Set these variables, which are no secrets, in its jobs: pipeops-runner exchanges their ID tokens for certificates.",
			Label: "Variables", Secret: c.Variables(), Back: runnersPath, BackText: "Runners",
		}}, nil
	}
	text, err := c.Encode()
	return outcome{made: &made{
		Text: "The credentials are shown here once. Keep them like a password.", Label: "Credentials", Secret: string(text), File: name + ".json",
		NextText: "Save them as " + name + ".json, which only you can read, and try them:", Next: "chmod 600 " + name + ".json && pipeops-runner agents --credentials " + name + ".json",
		Back: runnersPath, BackText: "Runners",
	}}, err
}
