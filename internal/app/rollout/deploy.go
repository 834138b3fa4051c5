package rollout

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rs/zerolog"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/appcache"
	"github.com/pipeops/pipeops-vm-agent/internal/app/apply"
	"github.com/pipeops/pipeops-vm-agent/internal/app/revision"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/app/workload"
	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Writer writes Apps, and keeps the spec that an App had before.
type Writer struct {
	store   *appcache.Store
	applier *apply.Applier
	history *revision.History
	traces  traces
	races   kubeproblem.Races
	log     zerolog.Logger
	now     func() time.Time
}

// New returns a Writer.
func New(store *appcache.Store, applier *apply.Applier, history *revision.History, log zerolog.Logger, now func() time.Time) *Writer {
	return &Writer{store: store, applier: applier, history: history, log: log, now: now}
}

// Deploy creates the App or replaces its spec. The same spec again changes nothing but the record
// of the last sender, so sending it twice is harmless.
func (w *Writer) Deploy(ctx context.Context, key runnerapi.Key, spec runnerapi.AppSpec, opts runnerapi.WriteOptions) (runnerapi.App, error) {
	w.traces.note(ctx, key)
	if err := w.store.Admit(ctx, key.Namespace); err != nil {
		return runnerapi.App{}, err
	}
	if err := check(key.Name, spec); err != nil {
		return runnerapi.App{}, err
	}
	if err := w.tryPatches(ctx, key, spec, opts); err != nil {
		return runnerapi.App{}, err
	}
	if err := w.store.AdmitSize(ctx, key, spec); err != nil {
		return runnerapi.App{}, err
	}
	var a *v1alpha1.App
	err := w.races.Run(ctx, key.String(), func() error {
		var err error
		a, err = w.put(ctx, key, spec, opts)
		return err
	})
	if err == nil && opts.DryRun {
		err = w.applier.DryRun(ctx, a)
	}
	if err != nil {
		return runnerapi.App{}, deployProblem(err, key)
	}
	w.awaitCached(ctx, a, opts)
	return a.Wire(), nil
}

// check refuses a spec that no cluster would accept.
func check(name string, spec runnerapi.AppSpec) error {
	if errs := append(spec.ValidateName(name), spec.Validate()...); len(errs) > 0 {
		return invalid(errs)
	}
	return workload.CheckPatches(&v1alpha1.App{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec})
}

func invalid(errs []runnerapi.FieldError) error {
	if len(errs) == 0 {
		return nil
	}
	p := problem.Errorf(problem.Invalid, problem.CorrectField, "%s", errs[0].Message).
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

// put reads the newest App from the API server and writes it with the spec.
func (w *Writer) put(ctx context.Context, key runnerapi.Key, spec runnerapi.AppSpec, opts runnerapi.WriteOptions) (*v1alpha1.App, error) {
	a, err := w.store.GetLive(ctx, key)
	if apierrors.IsNotFound(err) {
		if err := unchanged(key, opts, 0); err != nil {
			return nil, err
		}
		return w.create(ctx, key, spec, opts)
	}
	if err != nil {
		return nil, err
	}
	if !a.DeletionTimestamp.IsZero() {
		return nil, beingDeleted(key)
	}
	if !objectmeta.RecordCommand(a, opts.Command) {
		return a, nil
	}
	if err := unchanged(key, opts, a.Generation); err != nil {
		return nil, err
	}
	if spec, err = kept(a, spec, opts); err != nil {
		return nil, err
	}
	err = w.replace(ctx, a, spec, opts)
	if apierrors.IsNotFound(err) { // it went in between, and is to be created
		err = apierrors.NewConflict(v1alpha1.GroupVersion.WithResource(v1alpha1.Plural).GroupResource(), key.Name, err)
	}
	return a, err
}

func unchanged(key runnerapi.Key, opts runnerapi.WriteOptions, generation int64) error {
	return runnerapi.Unchanged("App "+key.String(), "generation", opts.Generation, generation)
}

// kept returns the new spec with the parts of the App's spec that stay. The policy has decided
// about the new spec alone, so it decides about the combined spec again.
func kept(a *v1alpha1.App, named runnerapi.AppSpec, opts runnerapi.WriteOptions) (runnerapi.AppSpec, error) {
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
func (w *Writer) replace(ctx context.Context, a *v1alpha1.App, spec runnerapi.AppSpec, opts runnerapi.WriteOptions) error {
	if err := fixed(spec.ValidateChange(a.Spec)); err != nil {
		return err
	}
	if opts.Adopt {
		next := a.DeepCopy()
		next.Spec = *spec.DeepCopy()
		if err := w.applier.Adopt(ctx, next); err != nil {
			return err
		}
		a.Annotations = next.Annotations
	}
	if err := w.history.KeepUnseen(ctx, a, opts); err != nil {
		return err
	}
	if err := revision.AddNote(a, revision.NoteBy(opts)); err != nil {
		return err
	}
	return w.update(ctx, a, spec, opts)
}

// update writes a spec with its note. If the spec turns out to be unchanged, it removes the note:
// the next generation belongs to another command.
func (w *Writer) update(ctx context.Context, a *v1alpha1.App, spec runnerapi.AppSpec, opts runnerapi.WriteOptions) error {
	generation := a.Generation
	a.Spec = *spec.DeepCopy()
	sign(a, opts.Caller)
	if err := w.writer(opts).Update(ctx, a, client.FieldOwner(objectmeta.FieldManager)); err != nil || opts.DryRun {
		return err
	}
	if a.Generation != generation {
		return nil
	}
	if err := revision.DropNote(a, generation+1); err != nil {
		return err
	}
	return w.store.Cached.Update(ctx, a, client.FieldOwner(objectmeta.FieldManager))
}

func (w *Writer) create(ctx context.Context, key runnerapi.Key, spec runnerapi.AppSpec, opts runnerapi.WriteOptions) (*v1alpha1.App, error) {
	a := &v1alpha1.App{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name, Labels: objectmeta.AppLabels(key.Name),
		},
		Spec: *new(spec.KeepUnnamed(runnerapi.AppSpec{})).DeepCopy(),
	}
	sign(a, opts.Caller)
	objectmeta.RecordCommand(a, opts.Command)
	if err := w.applier.RefuseOrAdopt(ctx, a, opts); err != nil {
		return nil, err
	}
	if err := revision.AddNote(a, revision.NoteBy(opts)); err != nil {
		return nil, err
	}
	return a, w.writer(opts).Create(ctx, a, client.FieldOwner(objectmeta.FieldManager))
}

// writer returns the client for a write. A dry run must not make reads wait for a change that never
// comes.
func (w *Writer) writer(opts runnerapi.WriteOptions) client.Writer {
	if opts.DryRun {
		return client.NewDryRunClient(w.store.Live)
	}
	return w.store.Cached
}

// sign records on the App who changed it.
func sign(a *v1alpha1.App, caller runnerapi.Caller) {
	if a.Annotations == nil {
		a.Annotations = map[string]string{}
	}
	a.Annotations[objectmeta.ChangedBy] = caller.Runner
	a.Annotations[objectmeta.RequestID] = caller.RequestID
}

func deployProblem(err error, key runnerapi.Key) error {
	if foreign, ok := errors.AsType[*apply.ForeignError](err); ok {
		return problem.Errorf(problem.Conflict, foreign.Fix(), "%s", foreign.Error()).WithField("path.name")
	}
	return kubeproblem.From(err, fmt.Sprintf("deploying App %s", key))
}
