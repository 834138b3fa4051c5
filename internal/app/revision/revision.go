package revision

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/appcache"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/app/workload"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// History keeps the specs that an App had, as ControllerRevisions.
type History struct{ store *appcache.Store }

// New returns a History.
func New(store *appcache.Store) *History { return &History{store: store} }

// maxRevisions bounds what is read: the limit of a spec is far below.
const maxRevisions = 500

// staying are the fields that a rollback keeps: the number of pods and the pause do not describe
// what the App runs.
var staying = []string{"replicas", "autoscaling", "paused"}

// content returns the part of a spec that makes up a revision.
func content(spec runnerapi.AppSpec) (map[string]any, error) {
	raw, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	tree, err := decodeContent(raw)
	for _, field := range staying {
		delete(tree, field)
	}
	return tree, err
}

// decodeContent keeps numbers as they are written.
func decodeContent(raw []byte) (map[string]any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var tree map[string]any
	if err := d.Decode(&tree); err != nil {
		return nil, fmt.Errorf("read a revision: %w", err)
	}
	return tree, nil
}

// Restored returns the spec of a revision with the staying fields of the current spec.
func Restored(r *appsv1.ControllerRevision, present runnerapi.AppSpec) (runnerapi.AppSpec, error) {
	tree, err := decodeContent(r.Data.Raw)
	if err != nil {
		return runnerapi.AppSpec{}, err
	}
	raw, err := json.Marshal(present)
	if err != nil {
		return runnerapi.AppSpec{}, err
	}
	now, err := decodeContent(raw)
	if err != nil {
		return runnerapi.AppSpec{}, err
	}
	for _, field := range staying {
		delete(tree, field)
		if value, there := now[field]; there {
			tree[field] = value
		}
	}
	if raw, err = json.Marshal(tree); err != nil {
		return runnerapi.AppSpec{}, err
	}
	var spec runnerapi.AppSpec
	err = json.Unmarshal(raw, &spec)
	return spec, err
}

// List returns the App's revisions, oldest first, from the API server. They are needed only
// for writes, which are rare, so they are not cached.
func (h *History) List(ctx context.Context, a *v1alpha1.App) ([]appsv1.ControllerRevision, error) {
	var list appsv1.ControllerRevisionList
	err := h.store.Live.List(ctx, &list, client.InNamespace(a.Namespace), client.MatchingLabels(objectmeta.AppLabels(a.Name)), client.Limit(maxRevisions))
	if err != nil {
		return nil, fmt.Errorf("list the revisions of App %s: %w", a.Key(), err)
	}
	// Kubernetes keeps revisions of StatefulSets under the same labels.
	own := slices.DeleteFunc(list.Items, func(r appsv1.ControllerRevision) bool { return !metav1.IsControlledBy(&r, a) })
	slices.SortFunc(own, func(a, b appsv1.ControllerRevision) int { return cmp.Compare(a.Revision, b.Revision) })
	return own, nil
}

// Keep stores the App's spec as a revision if needed, and returns all revisions up to it: the
// last one is current. The reconciler calls it, and so does any caller that cannot wait for that.
// The name contains the generation, so all callers agree.
func (h *History) Keep(ctx context.Context, a *v1alpha1.App) ([]appsv1.ControllerRevision, error) {
	all, err := h.List(ctx, a)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(r appsv1.ControllerRevision) bool { return r.Revision > a.Generation })
	now, err := content(a.Spec)
	if err != nil {
		return nil, err
	}
	before := map[string]any{}
	if len(all) > 0 {
		newest := all[len(all)-1]
		if before, err = decodeContent(newest.Data.Raw); err != nil {
			return nil, err
		}
		if newest.Revision == a.Generation || reflect.DeepEqual(before, now) {
			return all, nil
		}
	}
	r, err := newRevision(a, before, now)
	if err != nil {
		return nil, err
	}
	if err := h.store.Live.Create(ctx, r, client.FieldOwner(objectmeta.FieldManager)); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("keep revision %d of App %s: %w", a.Generation, a.Key(), err)
	}
	all = append(all, *r)
	return all, h.prune(ctx, a, all)
}

// KeepUnseen stores the current spec before another one is written: the reconciler, which stores
// all others, may not have seen it yet.
func (h *History) KeepUnseen(ctx context.Context, a *v1alpha1.App, opts runnerapi.WriteOptions) error {
	if opts.DryRun || a.Status.ObservedGeneration >= a.Generation {
		return nil
	}
	_, err := h.Keep(ctx, a)
	return err
}

func newRevision(a *v1alpha1.App, before, now map[string]any) (*appsv1.ControllerRevision, error) {
	raw, err := json.Marshal(now)
	if err != nil {
		return nil, err
	}
	changes := []runnerapi.Change{}
	if len(before) > 0 {
		changes = difference(before, now)
	}
	changed, err := json.Marshal(changes)
	if err != nil {
		return nil, err
	}
	meta := workload.ChildMeta(a)
	meta.Name = a.Name + ".r" + strconv.FormatInt(a.Generation, 10)
	n := NoteOf(a, a.Generation)
	meta.Annotations = map[string]string{objectmeta.Changes: string(changed)}
	for key, value := range map[string]string{objectmeta.ChangedBy: n.Runner, objectmeta.Actor: n.Actor, objectmeta.RequestID: n.RequestID, objectmeta.Commit: n.Commit} {
		if value != "" {
			meta.Annotations[key] = value
		}
	}
	if n.Restores > 0 {
		meta.Annotations[objectmeta.Restores] = strconv.FormatInt(n.Restores, 10)
	}
	if n.Undone != nil {
		meta.Annotations[objectmeta.Undid] = strconv.FormatInt(n.Undone.Revision, 10)
	}
	return &appsv1.ControllerRevision{
		TypeMeta:   metav1.TypeMeta{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "ControllerRevision"},
		ObjectMeta: meta, Revision: a.Generation, Data: runtime.RawExtension{Raw: raw},
	}, nil
}

// prune deletes the oldest revisions beyond the limit. It keeps the current one and the one that an
// automatic rollback would restore.
func (h *History) prune(ctx context.Context, a *v1alpha1.App, all []appsv1.ControllerRevision) error {
	limit := int(ptr.Deref(a.Spec.RevisionHistoryLimit, runnerapi.DefaultRevisionHistory))
	for i := range all[:max(len(all)-limit, 0)] {
		r := &all[i]
		if r.Revision == a.RollbackTarget() || r.Revision == a.Generation {
			continue
		}
		if err := h.store.DeleteOwn(ctx, a, r); err != nil {
			return err
		}
	}
	return nil
}

// Forget deletes all revisions of a deleted App.
func (h *History) Forget(ctx context.Context, a *v1alpha1.App) error {
	all, err := h.List(ctx, a)
	if err != nil {
		return err
	}
	for i := range all {
		if err := h.store.DeleteOwn(ctx, a, &all[i]); err != nil {
			return err
		}
	}
	return nil
}

// Described returns an App's revisions as a Runner sees them, newest first. All are in order, and
// current is the number of the one that the App has.
func Described(a *v1alpha1.App, all []appsv1.ControllerRevision, current int64) []runnerapi.Revision {
	var now map[string]any
	for i := range all {
		if all[i].Revision == current {
			now, _ = decodeContent(all[i].Data.Raw) // what cannot be read is identical to none
		}
	}
	out := make([]runnerapi.Revision, 0, len(all))
	for i := range slices.Backward(all) {
		r := describe(&all[i])
		r.Current, r.Healthy = r.Revision == current, slices.Contains(a.Status.Healthy, r.Revision)
		spec, err := decodeContent(all[i].Data.Raw)
		r.Identical = !r.Current && now != nil && err == nil && reflect.DeepEqual(spec, now)
		out = append(out, r)
	}
	return out
}

func describe(r *appsv1.ControllerRevision) runnerapi.Revision {
	out := runnerapi.Revision{
		Revision: r.Revision, CreatedAt: r.CreationTimestamp.Time, Runner: r.Annotations[objectmeta.ChangedBy],
		Actor:     r.Annotations[objectmeta.Actor],
		RequestID: r.Annotations[objectmeta.RequestID], Commit: r.Annotations[objectmeta.Commit], Changes: []runnerapi.Change{},
	}
	if tree, err := decodeContent(r.Data.Raw); err == nil {
		out.Image, _ = tree["image"].(string)
	}
	if raw := r.Annotations[objectmeta.Changes]; raw != "" && json.Unmarshal([]byte(raw), &out.Changes) != nil {
		out.Changes = []runnerapi.Change{} // the annotation was edited
	}
	out.Restores, _ = strconv.ParseInt(r.Annotations[objectmeta.Restores], 10, 64) // 0 if there is none
	out.Undid, _ = strconv.ParseInt(r.Annotations[objectmeta.Undid], 10, 64)
	return out
}

// Current returns the number of the current revision, which it stores if the reconciler has
// not.
func (h *History) Current(ctx context.Context, a *v1alpha1.App) (int64, error) {
	if a.Status.ObservedGeneration == a.Generation && a.Status.Revision != 0 {
		return a.Status.Revision, nil
	}
	all, err := h.Keep(ctx, a)
	if err != nil {
		return 0, err
	}
	return all[len(all)-1].Revision, nil
}
