package console

import (
	"cmp"
	"context"
	"net/http"
	"net/url"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
)

const enrolmentPath = operatorapi.ConsolePath + "/enrolment"

// enrolmentData is what the page Enrolment shows.
type enrolmentData struct {
	Waiting []waitingRow // for a decision
	Decided []waitingRow
	Tokens  web.Rows[operatorapi.Token]
}

type waitingRow struct {
	operatorapi.Registration
	ShortKey, Cluster string
}

// accessPages are the pages about who may register, send commands and operate.
type accessPages struct{ *site }

func (p *accessPages) enrolment(w http.ResponseWriter, r *http.Request) error {
	return show(p.site, w, r, "enrolment", page(r, "Enrolment", enrolmentPath, ""), func(ctx context.Context) (data enrolmentData, err error) {
		list, err := operatorapi.ListAgents.Do(ctx, p.opts.API, operatorapi.ListAgentsInput{Limit: 1})
		if err != nil {
			return data, err
		}
		for _, e := range list.Waiting {
			row := waitingRow{e, controlapi.ShortPrint(e.Key), controlapi.ShortUID(e.ClusterUID)}
			if e.State == "pending" {
				data.Waiting = append(data.Waiting, row)
				continue
			}
			data.Decided = append(data.Decided, row)
		}
		tokens, err := operatorapi.ListTokens.Do(ctx, p.opts.API, struct{}{})
		data.Tokens = web.Paged(newestFirst(tokens.Items), r.URL.Query())
		return data, err
	})
}

// askApprove shows the key of the registration itself. One ID has one key, so the key that is shown
// is the one that is approved.
func askApprove(ctx context.Context, t operatorapi.Target, id string, _ url.Values) (web.Question, error) {
	list, err := operatorapi.ListAgents.Do(ctx, t, operatorapi.ListAgentsInput{Limit: 1})
	if err != nil {
		return web.Question{}, err
	}
	text := "No registration with this ID waits. Open this page from the page Enrolment."
	for _, e := range list.Waiting {
		if e.ID == id {
			text = "Compare the key with the one in the agent's log: " + controlapi.ShortPrint(e.Key) + ". Approve only if both are the same. The agent then joins the fleet."
		}
	}
	return enrolmentQuestion(web.Question{Text: text, Button: "The keys are the same: approve", Command: web.CommandLine(program+" agent approve", id)}), nil
}

func newestFirst[T any](list []T) []T {
	turned := make([]T, 0, len(list))
	for i := range list {
		turned = append(turned, list[len(list)-1-i])
	}
	return turned
}

func enrolmentQuestion(q web.Question) web.Question {
	q.Back, q.BackText = enrolmentPath, "Enrolment"
	return q
}

var enrolmentChanges = map[string]change{
	"/agents/{name}/approve": {
		call: operatorapi.ApproveAgent.ID, title: "Approve {name}", page: enrolmentPath,
		askOf: askApprove,
		do: func(ctx context.Context, t operatorapi.Target, f form) (outcome, error) {
			_, err := operatorapi.ApproveAgent.Do(ctx, t, operatorapi.AgentInput{Write: f.write(), Agent: f.name})
			return outcome{to: enrolmentPath, done: "approve"}, err
		},
	},
	"/agents/{name}/deny": {
		call: operatorapi.DenyAgent.ID, title: "Deny {name}", page: enrolmentPath,
		ask: func(name string, _ url.Values) web.Question {
			return enrolmentQuestion(web.Question{
				Text: "The agent stops asking, and reports your reason.", Button: "Deny the registration", Danger: true,
				Command: web.CommandLine(program+" agent deny", name, "--reason", "REASON"),
				Fields:  []web.Field{{Kind: "text", Name: "reason", Label: "Reason"}},
			})
		},
		do: func(ctx context.Context, t operatorapi.Target, f form) (outcome, error) {
			_, err := operatorapi.DenyAgent.Do(ctx, t, operatorapi.DenyAgentInput{Write: f.write(), Agent: f.name, Body: operatorapi.DenyAgentBody{Reason: f.text("reason")}})
			return outcome{to: enrolmentPath, done: "deny"}, err
		},
	},
	"/enrolment/new": {call: operatorapi.CreateToken.ID, title: "Enrol machines", page: enrolmentPath, ask: askToken, do: createToken},
	"/tokens/{name}/rotate": {
		call: operatorapi.RotateToken.ID, title: "Replace token {name}", page: enrolmentPath,
		ask: func(name string, _ url.Values) web.Question {
			return enrolmentQuestion(web.Question{
				Text: "A new token with the same settings takes the old one's place.", Button: "Replace the token",
				Command: web.CommandLine(program+" token rotate", name, "--overlap", "1h"),
				Fields:  []web.Field{{Kind: "text", Name: "overlap", Label: "Keep the old token valid for", Value: "1h", Hint: "Such as 30m or 24h; empty ends it now."}},
			})
		},
		do: func(ctx context.Context, t operatorapi.Target, f form) (outcome, error) {
			overlap, err := f.duration("overlap")
			if err != nil {
				return outcome{}, err
			}
			token, err := operatorapi.RotateToken.Do(ctx, t, operatorapi.RotateTokenInput{Write: f.write(), ID: f.name, Body: operatorapi.RotateTokenBody{Overlap: overlap}})
			return outcome{made: madeToken(token, f)}, err
		},
	},
	"/tokens/{name}/revoke": {
		call: operatorapi.RevokeToken.ID, title: "Revoke token {name}", page: enrolmentPath,
		ask: func(name string, _ url.Values) web.Question {
			return enrolmentQuestion(web.Question{
				Text:   "No agent can register with the token any more. Agents that are registered stay.",
				Button: "Revoke the token", Danger: true, Command: web.CommandLine(program+" token revoke", name),
			})
		},
		do: func(ctx context.Context, t operatorapi.Target, f form) (outcome, error) {
			_, err := operatorapi.RevokeToken.Do(ctx, t, operatorapi.TokenInput{Write: f.write(), ID: f.name})
			return outcome{to: enrolmentPath, done: "revoke-token"}, err
		},
	},
}

func askToken(string, url.Values) web.Question {
	return enrolmentQuestion(web.Question{
		Text:   "A token lets machines register. The next page has the lines to paste.",
		Button: "Make the token", Command: program + " token create --name NAME --uses 1 --ttl 24h --label KEY=VALUE --approve",
		Fields: []web.Field{
			{Kind: "text", Name: "cluster", Label: "Name of the cluster", Hint: "For the lines to paste: a-z, 0-9 and '-'. Empty to fill it in there."},
			{Kind: "text", Name: "name", Label: "Purpose", Hint: "Shown in the list of tokens."},
			{Kind: "number", Required: true, Name: "uses", Label: "Number of machines", Value: "1", Max: 100_000, Hint: "0 for any number."},
			{Kind: "text", Name: "ttl", Label: "Valid for", Value: "24h", Hint: "Such as 30m or 720h; empty for unlimited."},
			{Kind: "text", Name: "labels", Label: "Labels of the agents", Hint: "KEY=VALUE, several separated by spaces."},
			{Kind: "checkbox", Name: "approve", Label: "Each registration waits until an operator approves it", Value: "true"},
		},
	})
}

func createToken(ctx context.Context, t operatorapi.Target, f form) (outcome, error) {
	uses, err := f.number("uses")
	if err != nil {
		return outcome{}, err
	}
	ttl, err := f.duration("ttl")
	if err != nil {
		return outcome{}, err
	}
	labels, _, err := f.labels("labels")
	if err != nil {
		return outcome{}, err
	}
	token, err := operatorapi.CreateToken.Do(ctx, t, operatorapi.CreateTokenInput{Write: f.write(), Body: operatorapi.CreateTokenBody{
		Name: f.text("name"), Uses: uses, TTL: ttl, Labels: labels, Approve: f.on("approve"),
	}})
	return outcome{made: madeToken(token, f)}, err
}

func madeToken(token operatorapi.NewToken, f form) *made {
	text := "The token is shown here once. Anyone who has it can register a machine."
	if token.Kubernetes != nil {
		text = "The token has no secret. Agents of its cluster register with it, as " + token.Kubernetes.ServiceAccount + "."
	}
	return &made{
		Text: text, Label: "Token", Secret: token.Text,
		NextText: "Choose one way, with a name for the cluster:", Lines: token.InstallLines(cmp.Or(f.text("cluster"), "NAME"), f.version),
		Back: enrolmentPath, BackText: "Enrolment", Live: operatorapi.ConsolePath + "/live/tokens/" + url.PathEscape(token.ID), Use: &tokenUse{},
	}
}

// tokenUse is what came of a token that was made.
type tokenUse struct {
	Uses        int
	Agent, Name string // of the last agent that registered; empty for none
	Waiting     []operatorapi.Registration
}

// tokenLive shows which machine registers with a token.
func (p *accessPages) tokenLive(w http.ResponseWriter, r *http.Request) error {
	return follow(p.site, w, r, "made", func(ctx context.Context) (made, error) {
		use, err := readTokenUse(ctx, p.opts.API, r.PathValue("name"))
		return made{Use: &use}, err
	})
}

func readTokenUse(ctx context.Context, t operatorapi.Target, id string) (use tokenUse, err error) {
	tokens, err := operatorapi.ListTokens.Do(ctx, t, struct{}{})
	if err != nil {
		return use, err
	}
	for _, token := range tokens.Items {
		if token.ID == id {
			use.Uses, use.Agent, use.Name = token.Uses, token.LastUsedBy, cmp.Or(token.LastUsedByName, token.LastUsedBy)
		}
	}
	list, err := operatorapi.ListAgents.Do(ctx, t, operatorapi.ListAgentsInput{Limit: 1})
	for _, e := range list.Waiting {
		if e.TokenID == id && e.State == "pending" {
			use.Waiting = append(use.Waiting, e)
		}
	}
	return use, err
}
