package console

import (
	"context"
	"net/http"
	"net/url"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
)

const operatorsPath = operatorapi.ConsolePath + "/operators"

// operatorRow is an operator with what its certificate is worth.
type operatorRow struct {
	store.Operator
	State string
}

// operatorsData is what the page of the operators shows.
type operatorsData struct {
	web.Rows[operatorRow]
	Acting   []store.ActingOperator
	Sessions []sessionRow
}

// sessionRow is an operator with sessions in the console, by the newest of them.
type sessionRow struct {
	operatorapi.ConsoleSession
	Count int
}

// sessionsOf counts the sessions of each operator.
func sessionsOf(list []operatorapi.ConsoleSession) (rows []sessionRow) {
	for _, s := range list {
		if last := len(rows) - 1; last >= 0 && rows[last].Operator == s.Operator {
			rows[last].Count++
			continue
		}
		rows = append(rows, sessionRow{s, 1})
	}
	return rows
}

func (p *accessPages) operators(w http.ResponseWriter, r *http.Request) error {
	return show(p.site, w, r, "operators", page(r, "Operators", operatorsPath, ""), func(ctx context.Context) (operatorsData, error) {
		list, err := operatorapi.ListOperators.Do(ctx, p.opts.API, struct{}{})
		if err != nil {
			return operatorsData{}, err
		}
		acting, err := operatorapi.ListOperatorRunners.Do(ctx, p.opts.API, struct{}{})
		if err != nil {
			return operatorsData{}, err
		}
		sessions, err := operatorapi.ListConsoleSessions.Do(ctx, p.opts.API, struct{}{})
		rows := make([]operatorRow, len(list.Items))
		for i, o := range list.Items {
			rows[i] = operatorRow{o, o.State(p.opts.Now())}
		}
		return operatorsData{web.Paged(rows, r.URL.Query()), acting.Items, sessionsOf(sessions.Items)}, err
	})
}

var operatorChanges = map[string]change{
	"/operators/set-runner": {
		call: operatorapi.SetOperatorRunner.ID, title: "Have an operator act as a Runner", page: operatorsPath,
		ask: func(string, url.Values) web.Question {
			return web.Question{
				Text:   "The operator deploys, restarts, scales and rolls back Apps on agents' pages, and reads their logs, as far as the Runner's grant and the clusters' policies allow. Agents' audit logs name both.",
				Button: "Set the Runner", Command: program + " operator runner set NAME RUNNER", Back: operatorsPath, BackText: "Operators",
				Fields: []web.Field{
					{Kind: "text", Name: "operator", Label: "Operator", Required: true, Hint: "A person who signs in by OpenID Connect is openid/NAME."},
					{Kind: "text", Name: "runner", Label: "Runner", Required: true},
				},
			}
		},
		do: func(ctx context.Context, t operatorapi.Target, f form) (outcome, error) {
			_, err := operatorapi.SetOperatorRunner.Do(ctx, t, operatorapi.SetOperatorRunnerInput{Write: f.write(), Body: operatorapi.SetOperatorRunnerBody{
				Operator: f.text("operator"), Runner: f.text("runner"),
			}})
			return outcome{to: operatorsPath, done: "set-runner"}, err
		},
	},
	"/operators/delete-runner": {
		call: operatorapi.DeleteOperatorRunner.ID, title: "Have an operator act as no Runner", page: operatorsPath,
		ask: func(_ string, query url.Values) web.Question {
			operator := query.Get("operator")
			return web.Question{
				Text: operator + " reaches no App from the next call.", Button: "Take the Runner away", Command: web.CommandLine(program+" operator runner delete", operator),
				Back: operatorsPath, BackText: "Operators", Hidden: []web.Hidden{{Name: "operator", Value: operator}},
			}
		},
		do: func(ctx context.Context, t operatorapi.Target, f form) (outcome, error) {
			_, err := operatorapi.DeleteOperatorRunner.Do(ctx, t, operatorapi.DeleteOperatorRunnerInput{
				Write: f.write(), Body: operatorapi.DeleteOperatorRunnerBody{Operator: f.text("operator")},
			})
			return outcome{to: operatorsPath, done: "delete-runner"}, err
		},
	},
	"/operators/end-sessions": {
		call: operatorapi.DeleteConsoleSessions.ID, title: "Sign an operator out everywhere", page: operatorsPath,
		ask: func(_ string, query url.Values) web.Question {
			operator := query.Get("operator")
			return web.Question{
				Text:   "All sessions of " + operator + " in the console end at once, in every browser. The operator can sign in again, unless you also revoke the certificate, or take away the groups at the identity provider.",
				Button: "End the sessions", Danger: true, Command: web.CommandLine(program+" operator session delete", operator),
				Back: operatorsPath, BackText: "Operators", Hidden: []web.Hidden{{Name: "operator", Value: operator}},
			}
		},
		do: func(ctx context.Context, t operatorapi.Target, f form) (outcome, error) {
			_, err := operatorapi.DeleteConsoleSessions.Do(ctx, t, operatorapi.DeleteConsoleSessionsInput{
				Write: f.write(), Body: operatorapi.DeleteConsoleSessionsBody{Operator: f.text("operator")},
			})
			return outcome{to: operatorsPath, done: "end-sessions"}, err
		},
	},
	"/operators/new": {
		call: operatorapi.CreateOperator.ID, title: "Create an operator", page: operatorsPath,
		ask: func(string, url.Values) web.Question {
			return web.Question{
				Text:   "The next page has the operator's credentials. A viewer reads. An operator also changes the fleet. An admin also manages the CA, the operators and the releases.",
				Button: "Create the operator", Command: program + " operator create NAME --role ROLE -o NAME.json", Back: operatorsPath, BackText: "Operators",
				Fields: []web.Field{
					{Kind: "text", Name: "name", Label: "Name", Required: true, Hint: "a-z, 0-9 and '-'."},
					{Kind: "select", Name: "role", Label: "Role", Options: administration.Roles, Value: administration.RoleViewer},
					{Kind: "text", Name: "ttl", Label: "Valid for", Value: "2160h", Hint: "Such as 2160h, which is 90 days; a year at most."},
					{Kind: "checkbox", Name: "replace", Label: "Replace the credentials and the role of an existing operator"},
				},
			}
		},
		do: func(ctx context.Context, t operatorapi.Target, f form) (outcome, error) {
			ttl, err := f.duration("ttl")
			if err != nil {
				return outcome{}, err
			}
			name := f.text("name")
			credentials, err := operatorapi.CreateOperator.Do(ctx, t, operatorapi.CreateOperatorInput{Write: f.write(), Body: operatorapi.CreateOperatorBody{
				Name: name, Role: f.text("role"), TTL: ttl, Replace: f.on("replace"),
			}})
			if err != nil {
				return outcome{}, err
			}
			text, err := credentials.Encode()
			return outcome{made: &made{
				Text: "The credentials are shown here once. Keep them like a password.", Label: "Credentials", Secret: string(text), File: name + ".json",
				NextText: "Save them as " + name + ".json, which only the operator can read, and open the console with them:",
				Next:     "chmod 600 " + name + ".json && " + program + " console --credentials " + name + ".json", Back: operatorsPath, BackText: "Operators",
			}}, err
		},
	},
	"/operators/{name}/revoke": {
		call: operatorapi.RevokeOperator.ID, title: "Revoke {name}", page: operatorsPath,
		ask: func(name string, _ url.Values) web.Question {
			return web.Question{
				Text:   "The control plane refuses the operator's certificate, and ends the sessions in the console.",
				Button: "Revoke the operator", Danger: true, Command: web.CommandLine(program+" operator revoke", name), Back: operatorsPath, BackText: "Operators",
			}
		},
		do: func(ctx context.Context, t operatorapi.Target, f form) (outcome, error) {
			_, err := operatorapi.RevokeOperator.Do(ctx, t, operatorapi.OperatorInput{Write: f.write(), Operator: f.name})
			return outcome{to: operatorsPath, done: "revoke-operator"}, err
		},
	},
}
