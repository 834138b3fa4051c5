package console

import (
	"cmp"
	"context"
	"crypto/rand"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/appform"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
)

// change is something that a page can change: what it asks before, and the call that does it.
type change struct {
	call  string // its ID
	title string // {name} stands for what is changed, and {app} for an App
	page  string // the entry of the navigation
	agent bool   // the name in the path is an agent's, or its ID
	acts  bool   // the operator acts as a Runner
	ask   func(name string, query url.Values) web.Question
	// askOf is ask for a question that depends on what there is.
	askOf func(ctx context.Context, t operatorapi.Target, name string, query url.Values) (web.Question, error)
	do    func(ctx context.Context, t operatorapi.Target, f form) (outcome, error)
}

// outcome is what follows a change: another page, or a secret that is shown once.
type outcome struct {
	to, done string // path, and the key of a notice
	made     *made
}

// made is what the page "made" shows.
type made struct {
	Text, Secret, Label string
	File                string // name to save the secret by; empty for none
	Next, NextText      string // a command line
	Lines               []operatorapi.InstallLines
	Back, BackText      string
	Live                string    // path of the stream
	Use                 *tokenUse // of the token that was made
}

// form is what was sent, and the name in the path.
type form struct {
	name    string
	values  url.Values
	version string // of the control plane
}

func (f form) text(field string) string { return strings.TrimSpace(f.values.Get(field)) }

// sent returns a field's value as it was sent; nil if it was not.
func (f form) sent(field string) *string {
	if !f.values.Has(field) {
		return nil
	}
	return new(f.values.Get(field))
}

func (f form) on(field string) bool { return f.values.Get(field) == "true" }

// write has the key of the form: one that is sent twice is carried out once.
func (f form) write() operatorapi.Write {
	return operatorapi.Write{IdempotencyKey: f.values.Get("key")}
}

func (f form) number(field string) (int, error) {
	n, err := strconv.Atoi(f.text(field))
	if err != nil {
		return 0, problem.Errorf(problem.Invalid, "enter a number", "%s: %.40q is not a number", field, f.text(field))
	}
	return n, nil
}

func (f form) duration(field string) (operatorapi.Duration, error) {
	if f.text(field) == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(f.text(field))
	if err != nil {
		return 0, problem.Errorf(problem.Invalid, "write 90s, 5m or 24h", "%s: %.40q is not a duration", field, f.text(field))
	}
	return operatorapi.Duration(d), nil
}

// labels parses KEY=VALUE and, for those to remove, KEY-.
func (f form) labels(field string) (set map[string]string, remove []string, err error) {
	set = map[string]string{}
	for _, word := range appform.Words(f.text(field)) {
		key, value, found := strings.Cut(word, "=")
		switch {
		case found && key != "":
			set[key] = value
		case strings.HasSuffix(word, "-"):
			remove = append(remove, strings.TrimSuffix(word, "-"))
		default:
			return nil, nil, problem.Errorf(problem.Invalid, "write KEY=VALUE to set a label, and KEY- to remove one", "%.100q is not a label", word)
		}
	}
	return set, remove, nil
}

// program is what equivalent command lines are for.
const program = "pipeops-controlplane"

// changes are all of them by their path below the console's.
func changes() map[string]change {
	all := map[string]change{}
	for _, some := range []map[string]change{agentChanges, appChanges, enrolmentChanges, runnerChanges, webhookChanges, announcementChanges, releaseChanges, hostChanges, operatorChanges} {
		maps.Copy(all, some)
	}
	return all
}

// changePages ask before each change, and carry it out.
type changePages struct{ *site }

// ask shows the page that asks before a change.
func (p *changePages) ask(change change) web.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if v := visitor(r.Context()); !v.may(change.call) {
			return problem.Errorf(problem.Forbidden, "have an operator with the role "+roles()[change.call]+" do it",
				"operator %s has the role %s, and %s needs %s", v.Operator.Name, v.Operator.Role, change.call, roles()[change.call])
		}
		q, title, err := p.question(change, r)
		if err != nil {
			return err
		}
		p.showQuestion(w, r, http.StatusOK, change, title, q)
		return nil
	}
}

// showQuestion renders a question. A form that is sent twice is carried out once.
func (p *changePages) showQuestion(w http.ResponseWriter, r *http.Request, status int, change change, title string, q web.Question) {
	q.Action, q.With = r.URL.RequestURI(), cmp.Or(q.With, program)
	q.Hidden = append(q.Hidden, web.Hidden{Name: "key", Value: rand.Text()})
	of := page(r, title, change.page, "")
	of.Data = q
	p.pages.Render(w, r, status, "confirm", of)
}

// question returns what is asked before a change, and the page's title.
func (p *changePages) question(change change, r *http.Request) (q web.Question, title string, err error) {
	ctx, cancel := context.WithTimeout(calling(r.Context()), readTimeout)
	defer cancel()
	name := r.PathValue("name")
	called := name
	if change.agent {
		if called, err = p.agentName(ctx, name); err != nil {
			return q, "", err
		}
	}
	if change.acts {
		if err := p.opts.ReadsApps(ctx); err != nil { // before a long form is filled in
			return q, "", err
		}
	}
	if change.askOf != nil {
		q, err = change.askOf(ctx, p.opts.API, name, r.URL.Query())
	} else {
		q = change.ask(name, r.URL.Query())
	}
	if q.BackText == name {
		q.BackText = called
	}
	app := cmp.Or(r.URL.Query().Get("app"), "an App")
	return q, strings.NewReplacer("{name}", called, "{app}", app).Replace(change.title), err
}

// agentName returns what an agent is called. The change itself refuses an agent that is not there.
func (p *changePages) agentName(ctx context.Context, agent string) (string, error) {
	found, err := operatorapi.GetAgent.Do(ctx, p.opts.API, operatorapi.GetAgentInput{Agent: agent})
	if err != nil && web.ProblemOf(err).Code == problem.NotFound {
		return agent, nil
	}
	return found.Agent.Name, err
}

// askAgain shows the form again, with what was sent and why that was refused. It reports whether it
// did: some errors are not about the form.
func (p *changePages) askAgain(w http.ResponseWriter, r *http.Request, change change, why error) bool {
	q, title, err := p.question(change, r)
	if err != nil {
		return false
	}
	q, again := q.Again(r.PostForm, why)
	if !again {
		return false
	}
	p.showQuestion(w, r, q.Problem.Status, change, title, q)
	return true
}

// change carries a change out.
func (p *changePages) change(change change) web.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		ctx, cancel := context.WithTimeout(calling(r.Context()), readTimeout)
		defer cancel()
		out, err := change.do(ctx, p.opts.API, form{r.PathValue("name"), r.PostForm, p.opts.Version})
		if err != nil {
			if p.askAgain(w, r, change, err) {
				return nil
			}
			return err
		}
		if out.made != nil {
			of := page(r, strings.ReplaceAll(change.title, "{name}", r.PathValue("name")), change.page, out.made.Live)
			of.Data = *out.made
			p.pages.Render(w, r, http.StatusOK, "made", of)
			return nil
		}
		sep := "?"
		if strings.Contains(out.to, sep) {
			sep = "&"
		}
		http.Redirect(w, r, out.to+sep+"done="+out.done, http.StatusSeeOther)
		return nil
	}
}

// done are the notices after a change, by the query that a redirect carries.
var done = map[string]string{ //nolint:gosec // sentences, and no credentials
	"label": "The labels are set.", "revoke-agent": "The agent is revoked. Its tunnel closes.", "delete-agent": "The agent is removed. Its cluster can register again.",
	"approve": "The registration is approved. The agent registers within a minute.", "deny": "The registration is denied.",
	"revoke-token": "The token is revoked.", "revoke-runner": "The Runner is revoked.", "enable": "The webhook gets events again.",
	"delete-webhook": "The webhook is deleted.", "update-webhook": "The webhook is changed.", "test-webhook": "The receiver took the test event.",
	"test-webhook-failed": "The receiver did not take the test event: the first delivery says why.", "requeue": "The chosen announcements are on their way again.", "drop": "The chosen announcements are dropped.",
	"withdraw": "The offer is withdrawn.", "create-host-grant": "The agent may serve the host.", "delete-host-grant": "The host is taken back.",
	"deploy-app": "The agent deploys the App. This page shows how far it is.", "restart-app": "The App restarts. This page shows how far it is.", "scale-app": "The number of pods is set. This page shows how far the agent is.",
	"stop-app": "The App stops. Its pods end.", "pause-app": "The App is paused.", "resume-app": "The App is resumed.", "delete-app": "The App is deleted. Its pods end.",
	"rollback-app":  "The App goes back to the revision. This page shows how far it is.",
	"delete-runner": "The operator acts as no Runner any more.", "set-runner": "The operator acts as the Runner from now on.",
	"end-sessions":    "The operator is signed out everywhere.",
	"revoke-operator": "The operator is revoked, and signed out everywhere.",
}

// Changes returns the paths of all changes, below the console's, and the call of each.
func Changes() map[string]string {
	calls := map[string]string{deployPath: operatorapi.DeployApp.ID}
	for path, change := range changes() {
		calls[path] = change.call
	}
	return calls
}
