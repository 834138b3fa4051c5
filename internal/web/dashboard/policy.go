package dashboard

import (
	"context"
	"net/http"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/kube"
	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/policy"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// policyState is the policy, and what it means for Runners.
type policyState struct {
	runnerapi.PolicyState
	Summary []string
	Rules   []policy.Rule
	Text    string // the document, as its owner wrote it
	InFile  bool   // the policy is a file, which no page changes
	Problem *problem.Error
	Waiting []runnerapi.Approval
}

// policyPages are the policy, its switch and its approvals.
type policyPages struct{ *site }

const pausedKey = "paused" // of the policy's ConfigMap

// read reads the policy by the code that the agent has for it.
func (d *policyPages) read(ctx context.Context) policyState {
	var doc policy.Document
	var text string
	var err error
	source := d.cluster.facts.PolicySource()
	if d.opts.PolicyFile != "" {
		source = d.opts.PolicyFile
		doc, err = policy.ReadFile(d.opts.PolicyFile)
	} else {
		var data map[string]string
		if data, err = d.cluster.facts.ReadPolicy(ctx); err != nil {
			return policyState{PolicyState: runnerapi.PolicyState{State: "unknown", Source: source}, Problem: unread(err, "reading the policy")}
		}
		text = data["policy.yaml"]
		doc, err = policy.FromConfigMap(data)
	}
	p := policy.New(source)
	p.Set(doc, err)
	return policyState{PolicyState: p.State(), Summary: doc.Summary(), Rules: doc.Rules, Text: text, InFile: d.opts.PolicyFile != ""}
}

// wrong returns what the owner should know of the policy first.
func (s policyState) wrong() []trouble {
	switch s.State {
	case "invalid":
		return []trouble{{Title: "The policy is invalid: all commands are refused", Detail: web.Sentence(s.Message), Fix: s.Fix, Href: "/policy", Tone: "bad"}}
	case "paused":
		return []trouble{{Title: "All commands of Runners are refused", Detail: "The policy has paused them. Apps run on.", Fix: "let Runners in again on the page Policy", Href: "/policy", Tone: "warn"}}
	case "readOnly":
		return []trouble{{Title: "Runners can only read", Detail: "The policy is read-only.", Href: "/policy", Tone: "warn"}}
	}
	return nil
}

func (d *policyPages) policy() view[policyState] {
	return view[policyState]{
		site: d.site, name: "policy", page: titled("Policy", "/policy"),
		read: func(*http.Request) func(context.Context) (policyState, error) { return d.readAll },
		watch: func(*http.Request) []watched {
			return []watched{inNamespace(&corev1.ConfigMapList{}, d.opts.Namespace)}
		},
	}
}

// readAll reads the policy, and the commands that wait for an approval.
func (d *policyPages) readAll(ctx context.Context) (policyState, error) {
	s := d.read(ctx)
	waiting, err := d.cluster.approvals.List(ctx)
	if s.Waiting = waiting; s.Problem == nil {
		s.Problem = unread(err, "reading requests for approvals")
	}
	if away(err) && s.Problem != nil {
		return s, err
	}
	return s, nil
}

func (d *policyPages) askPause(w http.ResponseWriter, r *http.Request) error {
	on := r.URL.Query().Get("on") != "false"
	q := web.Question{
		Text:   "Every call of every Runner is refused, reading too, and what is followed ends. Apps run on, and the agent keeps them as they are.",
		Button: "Stop all commands", Action: "/policy/pause", Back: "/policy", BackText: "Policy", Danger: true,
		Hidden: []web.Hidden{{Name: "on", Value: "true"}}, With: "kubectl",
	}
	title := "Stop all commands of Runners"
	if !on {
		title, q.Button, q.Danger, q.Hidden = "Let Runners in again", "Let Runners in again", false, []web.Hidden{{Name: "on", Value: "false"}}
		q.Text = "Runners can send the commands again that the policy allows."
	}
	q.Command = "kubectl -n " + d.opts.Namespace + " patch configmap " + kube.PolicyConfigMap + ` --type merge -p '{"data":{"paused":"` + strconv.FormatBool(on) + `"}}'`
	d.pages.Render(w, r, http.StatusOK, "confirm", page(r, title, "/policy", q))
	return nil
}

// pause sets the switch that stops all, which is a key of the policy's ConfigMap.
func (d *policyPages) pause(w http.ResponseWriter, r *http.Request) error {
	if d.opts.PolicyFile != "" {
		return problem.Errorf(problem.Conflict, "set paused in "+d.opts.PolicyFile, "the policy is a file of this machine, which the dashboard does not change")
	}
	on := r.PostForm.Get("on") == "true"
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	record := runnerapi.AuditRecord{Time: d.opts.Now().UTC(), Command: "resume-runners"}
	if on {
		record.Command = "pause-runners"
	}
	err := d.setPaused(ctx, on)
	d.record(ctx, record, err)
	if err != nil {
		return kubeproblem.From(err, "changing the policy")
	}
	d.opts.Log.Info().Bool("paused", on).Msg("the policy denies all commands: its switch is set")
	what := "resume"
	if on {
		what = "pause"
	} else if s := d.read(ctx); s.State == "paused" {
		return problem.Errorf(problem.Conflict, "set paused to false in the document too: kubectl -n "+d.opts.Namespace+" edit configmap "+kube.PolicyConfigMap,
			"policy.yaml itself pauses all commands")
	}
	http.Redirect(w, r, "/policy?done="+what, http.StatusSeeOther)
	return nil
}

func (d *policyPages) setPaused(ctx context.Context, on bool) error {
	named := metav1.ObjectMeta{Namespace: d.opts.Namespace, Name: kube.PolicyConfigMap}
	value := strconv.FormatBool(on)
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"data":{"`+pausedKey+`":"`+value+`"}}`))
	err := d.cluster.client.Patch(ctx, &corev1.ConfigMap{ObjectMeta: named}, patch)
	if apierrors.IsNotFound(err) {
		err = d.cluster.client.Create(ctx, &corev1.ConfigMap{ObjectMeta: named, Data: map[string]string{pausedKey: value}})
	}
	return err
}

// approve approves a command that waits for the owner.
func (d *policyPages) approve(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	record := runnerapi.AuditRecord{Time: d.opts.Now().UTC(), Command: "approve"}
	approved, err := d.cluster.approvals.Approve(ctx, r.PostForm.Get("id"))
	record.Namespace, record.Name, record.Approval = approved.Namespace, approved.Name, approved.ID
	d.record(ctx, record, err)
	if err != nil {
		return problem.Errorf(problem.Conflict, "", "%v", err)
	}
	http.Redirect(w, r, "/policy?done=approve", http.StatusSeeOther)
	return nil
}
