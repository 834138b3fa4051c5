package source

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/source/forge"
	"github.com/pipeops/pipeops-vm-agent/internal/source/git"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// notPreview refuses a call about the source of a preview: the agent would take it back.
func (o *object) notPreview() error {
	of := o.Spec.PreviewOf
	if of == nil {
		return nil
	}
	return problem.Errorf(problem.Conflict, "change or delete that source; or close the request",
		"source %s is the preview of request %d of source %s", o.key(), of.Number, of.Key())
}

// home returns the namespace whose Secrets a source may name: its own, or for a preview that of the
// source which it is of. That source must be there, as the preview's spec has it: else who may
// create sources in one namespace could use the Secrets of another.
func (a *applier) home(ctx context.Context, api *api, o *object) (string, error) {
	of := o.Spec.PreviewOf
	if of == nil {
		return o.Namespace, nil
	}
	u, err := api.objects.Resource(resource).Namespace(of.Namespace).Get(ctx, of.Source, metav1.GetOptions{})
	if err != nil {
		return "", explain(err, of.Key(), "reading")
	}
	parent, err := read(u)
	if err != nil {
		return "", err
	}
	if p := parent.wire(); p.Spec.Previews != nil && parent.caller().Runner == o.caller().Runner {
		want := p.Preview(of.Number, o.Spec.Ref.Commit)
		want.Spec.PreviewOf.SignIn = of.SignIn // it follows the control plane
		if want.Namespace == o.Namespace && want.Name == o.Name && equality.Semantic.DeepEqual(want.Spec, o.Spec) {
			return of.Namespace, nil
		}
	}
	return "", &git.Error{Reason: git.Credentials, Message: fmt.Sprintf("its spec is not the one that source %s gives its previews", of.Key()), Fix: "wait: the agent updates its previews"}
}

// ingressOfPreview returns how a preview is reached: its App has a host of its own below the
// gateway's domain in place of those that the file names, which are the real one's. Where it has
// visitors, the gateway alone serves it.
func ingressOfPreview(of *runnerapi.SourcePreviewOf, in *runnerapi.Ingress) *runnerapi.Ingress {
	if in == nil {
		return nil
	}
	out := *in
	out.Public, out.Hosts = in.Public || len(in.Hosts) > 0, nil
	file := in.Visitors
	if file == nil {
		wants := runnerapi.ReadRouteAnnotations(in.Annotations)
		if wants.Unmet != "" && of.Visitors == nil {
			return &out // no one is let in
		}
		file = wants.Visitors
	}
	if admitted := of.Admits(file); admitted != file {
		out.Visitors, out.Class = admitted, ""
	}
	return &out
}

// signIn returns whether visitors of a source's previews sign in by the control plane, unless their
// files say otherwise, and a warning if everyone is let in unasked. Until the control plane has
// said whether it has an identity provider, a preview stays as it is, and a new one is closed.
func (p *previews) signIn(o *object, before bool) (signIn bool, warning string) {
	want := o.Spec.Previews
	if want.Open || want.Visitors != nil {
		return false, ""
	}
	if p.provider == nil {
		return false, openWarning
	}
	has, known := p.provider()
	switch {
	case !known:
		return before, ""
	case !has:
		return false, openWarning
	}
	return true, ""
}

// openWarning is in the status of a source whose previews are open, though no one has asked for it.
const openWarning = "everyone may visit the previews whose files name no visitors: the control plane has no identity provider for visitors; " +
	"set previews.visitors, or previews.open to accept it"

// stays refuses an object of a preview that would not go with the preview's namespace.
func stays(o *object, namespace string, b runnerapi.ObjectIntent) error {
	if o.Spec.PreviewOf == nil || namespace == o.Namespace && !b.ClusterScoped {
		return nil
	}
	return problem.Errorf(problem.Forbidden, "leave the namespace out; for what a preview must not have, set previews.path to an overlay without it",
		"a preview may only have objects in its own namespace, which %s %s is not", b.Kind, b.Name)
}

// comment writes on the request of a preview what became of its newest commit.
func (r *reporter) comment(ctx context.Context, n *news, to destination, want commitState) error {
	of := n.source.Spec.PreviewOf
	if of == nil || !of.Comment || want.state == runnerapi.ReportPending {
		return nil
	}
	id, err := forge.Comment(ctx, to.remote, to.repository, to.credentials, of.Number, n.report.Comment, commentOf(want))
	n.report.Comment = id
	return err
}

func commentOf(want commitState) string {
	if want.state == runnerapi.ReportSuccess && want.url != "" {
		return fmt.Sprintf("Preview of %s: %s", want.commit, want.url)
	}
	return fmt.Sprintf("Preview of %s: %s", want.commit, forge.Code(want.description))
}

// retire tells the forge that what a source has deployed is about to be deleted.
func (r *reporter) retire(ctx context.Context, key runnerapi.Key) {
	n, known := r.newest(key)
	if !known || n.report.Deployment == nil {
		return
	}
	to, err := r.destination(ctx, n.source)
	if err == nil {
		err = forge.Retire(ctx, to.remote, to.repository, to.credentials, n.report.Deployment.ID)
	}
	if err != nil {
		r.log.Info().Err(err).Stringer("source", key).Msg("failed to tell the forge that a preview is gone; it shows its deployment still")
	}
}
