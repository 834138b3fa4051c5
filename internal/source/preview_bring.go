package source

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"

	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// The commands that the policy is asked about for a preview, and that its audit records name.
const (
	putNamespace    = "put-namespace"
	deleteNamespace = "delete-namespace"
	putSecret       = "put-secret"
)

// rightsSeen is how long the API server may take to see the agent's rights in a new namespace: 3 s.
var rightsSeen = wait.Backoff{Steps: 7, Duration: 50 * time.Millisecond, Factor: 2}

// bring makes the preview of a request, or updates it.
func (p *previews) bring(ctx context.Context, o *object, item runnerapi.SourcePreview, isNew bool) error {
	s := o.wire()
	child := s.Preview(item.Number, item.Commit)
	var copied []string
	if !item.Fork {
		copied = o.Spec.Previews.Secrets
	}
	if err := p.allowed(o, child, copied); err != nil {
		return err
	}
	opts := runnerapi.WriteOptions{Caller: o.caller()}
	set := func() error {
		return p.namespaces.SetPreview(ctx, child.Namespace, o.key(), o.Spec.Previews.Bounds(), opts)
	}
	var err error
	if isNew {
		about := map[string]string{"previewOf": o.key().String(), "request": strconv.FormatInt(item.Number, 10), "commit": item.Commit}
		record := p.journal.record(o, putNamespace, runnerapi.Key{Namespace: child.Namespace}, about)
		err = p.journal.act(ctx, record, item.Error != nil, set)
	} else {
		err = set()
	}
	if err != nil {
		return err
	}
	for _, name := range copied {
		if err := p.copySecret(ctx, o, name, child.Namespace); err != nil {
			return err
		}
	}
	return retry.OnError(rightsSeen, forbidden, func() error { return p.put(ctx, o, child) })
}

// allowed asks the policy about the namespace of a preview, and what the agent itself puts there.
func (p *previews) allowed(o *object, child runnerapi.Source, copied []string) error {
	ask := func(command string, access runnerapi.Access, name string) error { // the source itself had its approval
		return p.applier.allowed(o, runnerapi.Intent{Command: command, Access: access, Namespace: child.Namespace, Name: name, Approved: true})
	}
	for _, name := range copied {
		if err := ask(putSecret, runnerapi.Writes, name); err != nil {
			return err
		}
	}
	return cmp.Or(ask(putNamespace, runnerapi.Writes, ""), ask(putSource, runnerapi.Named, child.Name))
}

func forbidden(err error) bool { return apierrors.IsForbidden(err) }

// copySecret copies a Secret of the source's namespace into a preview's.
func (p *previews) copySecret(ctx context.Context, o *object, name, namespace string) error {
	api, err := p.cluster.client()
	if err != nil {
		return err
	}
	from, err := readSecret(ctx, api, o.Namespace, name)
	if err != nil {
		return err
	}
	if from.Type == corev1.SecretTypeServiceAccountToken {
		return problem.Errorf(problem.Invalid, "leave it out", "Secret %s is the token of a service account of its namespace", name).WithField("previews.secrets")
	}
	to := corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: objectmeta.Labels()},
		Type:       from.Type, Data: from.Data,
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&to)
	if err != nil {
		return fmt.Errorf("write Secret %s: its content has another form", name)
	}
	err = retry.OnError(rightsSeen, forbidden, func() error {
		_, err := api.objects.Resource(secrets).Namespace(namespace).Apply(ctx, name, &unstructured.Unstructured{Object: content},
			metav1.ApplyOptions{FieldManager: objectmeta.FieldManager, Force: true})
		return err
	})
	return kubeproblem.From(err, "copying Secret "+name+" into namespace "+namespace)
}

// put writes the source of a preview, unless it is as it is to be.
func (p *previews) put(ctx context.Context, o *object, child runnerapi.Source) error {
	api, err := p.cluster.client()
	if err != nil {
		return err
	}
	sources := api.objects.Resource(resource).Namespace(child.Namespace)
	want := newObject(runnerapi.Key{Namespace: child.Namespace, Name: child.Name})
	u, err := sources.Get(ctx, child.Name, metav1.GetOptions{})
	isNew := apierrors.IsNotFound(err)
	if err == nil {
		want, err = read(u)
	}
	if err != nil && !isNew {
		return err
	}
	had := isNew || want.Spec.PreviewOf == nil || want.Spec.PreviewOf.SignIn
	child.Spec.PreviewOf.SignIn, _ = p.signIn(o, had)
	if !isNew && equality.Semantic.DeepEqual(want.Spec, child.Spec) && want.caller() == o.caller() && want.sync() == o.sync() {
		return nil
	}
	want.Spec = child.Spec
	if want.Annotations == nil {
		want.Annotations = map[string]string{}
	}
	for _, note := range []string{objectmeta.ChangedBy, objectmeta.RequestID, objectmeta.Sync} { // a sync is of its previews, too
		want.Annotations[note] = o.Annotations[note]
	}
	next, err := want.write()
	if err != nil {
		return err
	}
	if isNew {
		_, err = sources.Create(ctx, next, metav1.CreateOptions{FieldManager: objectmeta.FieldManager, FieldValidation: metav1.FieldValidationStrict})
	} else {
		_, err = sources.Update(ctx, next, metav1.UpdateOptions{FieldManager: objectmeta.FieldManager, FieldValidation: metav1.FieldValidationStrict})
	}
	return err
}
