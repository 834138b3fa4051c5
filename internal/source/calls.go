package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/source/forge"
	"github.com/pipeops/pipeops-vm-agent/internal/source/git"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// maxSources bounds a list.
const maxSources = 1000

// explain returns the meaning of a refusal of the Kubernetes API here. The API server also returns
// "forbidden" if it does not know the resource.
func explain(err error, key runnerapi.Key, doing string) error {
	if err == nil {
		return nil
	}
	if apierrors.IsForbidden(err) || unknownResource(err) {
		return runnerapi.NotSupported("have the owner of the cluster apply deployments/sources.yaml (docs/deployer/git.md)",
			"following Git repositories is not turned on in this cluster")
	}
	if apierrors.IsNotFound(err) {
		return problem.Errorf(problem.NotFound, "check the name and the namespace", "there is no source %s", key)
	}
	return kubeproblem.From(err, doing+" source "+key.String())
}

// unknownResource reports that the API server has no such resource, rather than no such object.
func unknownResource(err error) bool {
	var status apierrors.APIStatus
	return apierrors.IsNotFound(err) && errors.As(err, &status) && (status.Status().Details == nil || status.Status().Details.Name == "")
}

// Set implements backend.Sources. A dry run gets the repository and applies it
// without changing anything.
func (k *Keeper) Set(ctx context.Context, key runnerapi.Key, spec runnerapi.SourceSpec, opts runnerapi.WriteOptions) (runnerapi.Source, error) {
	sources, err := k.cluster.on(ctx, key.Namespace)
	if err != nil {
		return runnerapi.Source{}, err
	}
	if spec.Type != runnerapi.SourceApp && k.config.Manifests == nil {
		return runnerapi.Source{}, runnerapi.NotSupported("use a source of type app", "this agent applies no manifests")
	}
	if refused := (git.Remote{URL: spec.URL, Guard: k.config.Guard}).CheckHost(); refused != nil {
		return runnerapi.Source{}, refused.Problem().WithField("url")
	}
	if spec.Previews != nil && k.config.Previews == nil {
		return runnerapi.Source{}, runnerapi.NotSupported("leave out previews", "this agent makes no previews")
	}
	if spec.Report != nil {
		if err := forge.CheckHost(git.Remote{URL: spec.URL, Guard: k.config.Guard}, *spec.Report); err != nil {
			return runnerapi.Source{}, err
		}
	}
	wanted := newObject(key)
	wanted.Spec, wanted.Annotations = spec, map[string]string{objectmeta.ChangedBy: opts.Caller.Runner, objectmeta.RequestID: opts.Caller.RequestID}
	if err := k.builder.check(ctx, wanted); err != nil {
		return runnerapi.Source{}, err
	}
	if spec.Promote != nil {
		if _, err := k.reconciler.applier.upstream(ctx, wanted); err != nil {
			return runnerapi.Source{}, err
		}
	}
	var o *object
	err = k.races.Run(ctx, key.String(), func() error {
		var err error
		o, err = k.put(ctx, sources, key, spec, opts)
		return err
	})
	if err != nil {
		return runnerapi.Source{}, explain(err, key, "writing")
	}
	if opts.DryRun {
		_, err = k.reconciler.try(ctx, o)
		if err == nil && spec.Report != nil {
			_, err = k.reporter.destination(ctx, o)
		}
		return o.wire(), asProblem(err)
	}
	k.Wake()
	return o.wire(), nil
}

// put writes a source. One that was there is checked again even if its spec is the same: its
// repository or its Secret may have been fixed.
func (k *Keeper) put(ctx context.Context, sources dynamic.ResourceInterface, key runnerapi.Key, spec runnerapi.SourceSpec, opts runnerapi.WriteOptions) (*object, error) {
	o := newObject(key)
	u, err := sources.Get(ctx, key.Name, metav1.GetOptions{})
	switch {
	case err == nil:
		if o, err = read(u); err != nil {
			return nil, err
		}
	case !apierrors.IsNotFound(err):
		return nil, err
	}
	if err := o.notPreview(); err != nil {
		return nil, err
	}
	if !objectmeta.RecordCommand(o, opts.Command) {
		return o, nil
	}
	o.Spec = spec
	if o.Annotations == nil {
		o.Annotations = map[string]string{}
	}
	o.Annotations[objectmeta.ChangedBy], o.Annotations[objectmeta.RequestID] = opts.Caller.Runner, opts.Caller.RequestID
	if o.UID != "" {
		o.Annotations[objectmeta.Sync] = k.mark(opts)
	}
	delete(o.Annotations, objectmeta.RolledBack)
	next, err := o.write()
	if err != nil {
		return nil, err
	}
	if o.UID == "" {
		u, err = sources.Create(ctx, next, metav1.CreateOptions{DryRun: dry(opts), FieldManager: objectmeta.FieldManager, FieldValidation: metav1.FieldValidationStrict})
	} else {
		u, err = sources.Update(ctx, next, metav1.UpdateOptions{DryRun: dry(opts), FieldManager: objectmeta.FieldManager, FieldValidation: metav1.FieldValidationStrict})
	}
	if err != nil {
		return nil, err
	}
	return read(u)
}

// update changes a source that is there. It writes nothing if change returns false.
func (k *Keeper) update(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions, change func(*object) (bool, error)) (o *object, err error) {
	sources, err := k.cluster.on(ctx, key.Namespace)
	if err != nil {
		return nil, err
	}
	err = k.races.Run(ctx, key.String(), func() error {
		u, err := sources.Get(ctx, key.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if o, err = read(u); err != nil {
			return err
		}
		if o.Annotations == nil {
			o.Annotations = map[string]string{}
		}
		if changed, err := change(o); err != nil || !changed {
			return err
		}
		next, err := o.write()
		if err != nil {
			return err
		}
		if u, err = sources.Update(ctx, next, metav1.UpdateOptions{DryRun: dry(opts), FieldManager: objectmeta.FieldManager}); err != nil {
			return err
		}
		o, err = read(u)
		return err
	})
	return o, err
}

func dry(opts runnerapi.WriteOptions) []string {
	if opts.DryRun {
		return []string{metav1.DryRunAll}
	}
	return nil
}

// Get implements backend.Sources.
func (k *Keeper) Get(ctx context.Context, key runnerapi.Key) (runnerapi.Source, error) {
	sources, err := k.cluster.on(ctx, key.Namespace)
	if err != nil {
		return runnerapi.Source{}, err
	}
	return wired(sources.Get(ctx, key.Name, metav1.GetOptions{}))(key, "reading")
}

// wired returns a source that was read or written, for a Runner.
func wired(u *unstructured.Unstructured, err error) func(runnerapi.Key, string) (runnerapi.Source, error) {
	return func(key runnerapi.Key, doing string) (runnerapi.Source, error) {
		if err != nil {
			return runnerapi.Source{}, explain(err, key, doing)
		}
		o, err := read(u)
		if err != nil {
			return runnerapi.Source{}, err
		}
		return o.wire(), nil
	}
}

// List implements backend.Sources.
func (k *Keeper) List(ctx context.Context, namespace string) ([]runnerapi.Source, error) {
	sources, err := k.cluster.on(ctx, namespace)
	if err != nil {
		return nil, err
	}
	list, err := sources.List(ctx, metav1.ListOptions{Limit: maxSources})
	if err != nil {
		return nil, explain(err, runnerapi.Key{Namespace: namespace, Name: "*"}, "listing")
	}
	return wires(list.Items)
}

// mark returns a value of objectmeta.Sync that no earlier call had.
func (k *Keeper) mark(opts runnerapi.WriteOptions) string {
	return cmp.Or(opts.Caller.RequestID, k.now().UTC().Format("20060102T150405.000000000"))
}

// Sync implements backend.Sources: it leaves a mark that the replica which leads
// finds. It ends what a rollback holds.
func (k *Keeper) Sync(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) (runnerapi.Source, error) {
	sources, err := k.cluster.on(ctx, key.Namespace)
	if err != nil {
		return runnerapi.Source{}, err
	}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q,%q:null}}}`, objectmeta.Sync, k.mark(opts), objectmeta.RolledBack)
	u, err := sources.Patch(ctx, key.Name, mergePatch, patch, metav1.PatchOptions{DryRun: dry(opts), FieldManager: objectmeta.FieldManager})
	if err == nil {
		k.Wake()
	}
	return wired(u, err)(key, "writing")
}

// Delete implements backend.Sources. It deletes the source that is there now, not one
// that came meanwhile.
func (k *Keeper) Delete(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) error {
	sources, err := k.cluster.on(ctx, key.Namespace)
	if err != nil {
		return err
	}
	err = k.races.Run(ctx, key.String(), func() error {
		u, err := sources.Get(ctx, key.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if o, err := read(u); err != nil {
			return err
		} else if err := o.notPreview(); err != nil {
			return err
		}
		if late, err := opts.Late(ctx); late || err != nil {
			return err
		}
		uid := u.GetUID()
		return sources.Delete(ctx, key.Name, metav1.DeleteOptions{DryRun: dry(opts), Preconditions: &metav1.Preconditions{UID: &uid}})
	})
	return explain(err, key, "deleting")
}
