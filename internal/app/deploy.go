package app

import (
	"context"
	"errors"
	"fmt"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/managed"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Deploy creates the App or replaces its spec. The same spec again changes nothing but the record
// of the last sender, so sending it twice is harmless.
func (e *Engine) Deploy(ctx context.Context, key runnerapi.Key, spec runnerapi.AppSpec, opts runnerapi.WriteOptions) (runnerapi.App, error) {
	e.traces.note(ctx, key)
	if err := e.admit(ctx, key.Namespace); err != nil {
		return runnerapi.App{}, err
	}
	if err := check(key.Name, spec); err != nil {
		return runnerapi.App{}, err
	}
	var a *App
	err := retry.OnError(retry.DefaultBackoff, raced, func() error {
		var err error
		a, err = e.put(ctx, key, spec, opts)
		return err
	})
	if err == nil && opts.DryRun {
		err = e.dryRunChildren(ctx, a)
	}
	if err != nil {
		return runnerapi.App{}, deployProblem(err, key)
	}
	e.awaitCached(ctx, a, opts)
	return a.Wire(), nil
}

// check refuses a spec that no cluster would accept.
func check(name string, spec runnerapi.AppSpec) error {
	return invalid(append(spec.ValidateName(name), spec.Validate()...))
}

func invalid(errs []runnerapi.FieldError) error {
	if len(errs) == 0 {
		return nil
	}
	p := problem.Errorf(problem.Invalid, "correct the field; the API's document is at /openapi.json", "%s", errs[0].Message).
		WithField(errs[0].Field)
	if len(errs) > 1 {
		p.Fields = errs
	}
	return p
}

// fixed returns the error for changes of immutable fields.
func fixed(errs []runnerapi.FieldError) error {
	if len(errs) == 0 {
		return nil
	}
	what, fix, _ := strings.Cut(errs[0].Message, ": ")
	return problem.Errorf(problem.Conflict, fix, "%s", what).WithField(errs[0].Field)
}

// raced reports whether another client wrote in between, so that a retry helps.
func raced(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }

// put reads the newest App from the API server and writes it with the spec.
func (e *Engine) put(ctx context.Context, key runnerapi.Key, spec runnerapi.AppSpec, opts runnerapi.WriteOptions) (*App, error) {
	a, err := e.getLive(ctx, key)
	if apierrors.IsNotFound(err) {
		return e.create(ctx, key, spec, opts)
	}
	if err != nil {
		return nil, err
	}
	if !a.DeletionTimestamp.IsZero() {
		return nil, beingDeleted(key)
	}
	if !managed.Note(a, opts.Command) {
		return a, nil
	}
	if spec, err = kept(a, spec, opts); err != nil {
		return nil, err
	}
	return a, e.replace(ctx, a, spec, opts)
}

// kept returns the new spec with the parts of the App's spec that stay. The policy has decided
// about the new spec alone, so it decides about the combined spec again.
func kept(a *App, named runnerapi.AppSpec, opts runnerapi.WriteOptions) (runnerapi.AppSpec, error) {
	spec := named.KeepUnnamed(a.Spec)
	if spec.Replicas == named.Replicas && spec.Autoscaling == named.Autoscaling {
		return spec, nil
	}
	if err := check(a.Name, spec); err != nil {
		return spec, err
	}
	if opts.Admit != nil {
		return spec, opts.Admit(spec)
	}
	return spec, nil
}

// replace writes a new spec.
func (e *Engine) replace(ctx context.Context, a *App, spec runnerapi.AppSpec, opts runnerapi.WriteOptions) error {
	if err := fixed(spec.ValidateChange(a.Spec)); err != nil {
		return err
	}
	if opts.Adopt {
		next := a.DeepCopy()
		next.Spec = *spec.DeepCopy()
		if err := e.adopt(ctx, next); err != nil {
			return err
		}
		a.Annotations = next.Annotations
	}
	if err := e.keepUnseen(ctx, a, opts); err != nil {
		return err
	}
	if err := addNote(a, note{Runner: opts.Caller.Runner, RequestID: opts.Caller.RequestID, Commit: opts.Commit}); err != nil {
		return err
	}
	return e.update(ctx, a, spec, opts)
}

// update writes a spec with its note. If the spec turns out to be unchanged, it removes the note:
// the next generation belongs to another command.
func (e *Engine) update(ctx context.Context, a *App, spec runnerapi.AppSpec, opts runnerapi.WriteOptions) error {
	generation := a.Generation
	a.Spec = *spec.DeepCopy()
	sign(a, opts.Caller)
	if err := e.writer(opts).Update(ctx, a, client.FieldOwner(managed.FieldManager)); err != nil || opts.DryRun {
		return err
	}
	if a.Generation != generation {
		return nil
	}
	if err := dropNote(a, generation+1); err != nil {
		return err
	}
	return e.cached.Update(ctx, a, client.FieldOwner(managed.FieldManager))
}

func (e *Engine) create(ctx context.Context, key runnerapi.Key, spec runnerapi.AppSpec, opts runnerapi.WriteOptions) (*App, error) {
	a := &App{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name, Labels: managed.AppLabels(key.Name), Finalizers: []string{finalizer},
		},
		Spec: *ptr.To(spec.KeepUnnamed(runnerapi.AppSpec{})).DeepCopy(),
	}
	sign(a, opts.Caller)
	managed.Note(a, opts.Command)
	if err := e.refuseOrAdopt(ctx, a, opts); err != nil {
		return nil, err
	}
	if err := addNote(a, note{Runner: opts.Caller.Runner, RequestID: opts.Caller.RequestID, Commit: opts.Commit}); err != nil {
		return nil, err
	}
	return a, e.writer(opts).Create(ctx, a, client.FieldOwner(managed.FieldManager))
}

// refuseOrAdopt checks the objects that already have the names of a new App's objects.
func (e *Engine) refuseOrAdopt(ctx context.Context, a *App, opts runnerapi.WriteOptions) error {
	if opts.Adopt {
		return e.adopt(ctx, a)
	}
	for _, child := range children(a) {
		if err := e.refuseForeign(ctx, a, child); err != nil {
			return err
		}
	}
	return nil
}

// dryRunChildren lets the cluster check the App's objects: quota, admission, pod security.
func (e *Engine) dryRunChildren(ctx context.Context, a *App) error {
	if a.UID == "" { // a dry run of a creation need not set one
		a.UID = types.UID("00000000-0000-0000-0000-000000000000")
	}
	for _, child := range children(a) {
		if _, ran := child.(*batchv1.Job); ran { // an existing Job cannot be changed, only replaced: check it under another name
			child.SetName("")
			child.SetGenerateName(a.Name + "-")
			if err := e.live.Create(ctx, child, client.DryRunAll, client.FieldOwner(managed.FieldManager)); err != nil {
				return err
			}
			continue
		}
		tried, err := e.triedAdoption(ctx, a, child)
		if err != nil {
			return err
		}
		if tried {
			continue
		}
		if err := e.apply(ctx, child, true, client.DryRunAll); err != nil {
			return err
		}
	}
	return nil
}

// writer returns the client for a write. A dry run must not make reads wait for a change that never
// comes.
func (e *Engine) writer(opts runnerapi.WriteOptions) client.Writer {
	if opts.DryRun {
		return client.NewDryRunClient(e.live)
	}
	return e.cached
}

// sign records on the App who changed it.
func sign(a *App, caller runnerapi.Caller) {
	if a.Annotations == nil {
		a.Annotations = map[string]string{}
	}
	a.Annotations[managed.ChangedBy] = caller.Runner
	a.Annotations[managed.RequestID] = caller.RequestID
}

// getLive reads the App from the API server, not from the cache.
func (e *Engine) getLive(ctx context.Context, key runnerapi.Key) (*App, error) {
	a := &App{}
	err := e.live.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: key.Name}, a)
	return a, err
}

func deployProblem(err error, key runnerapi.Key) error {
	var foreign *foreignError
	if errors.As(err, &foreign) {
		return problem.Errorf(problem.Conflict, foreign.fix(), "%s", foreign.Error()).WithField("path.name")
	}
	return kubeproblem.From(err, fmt.Sprintf("deploying App %s", key))
}
