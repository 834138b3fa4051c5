package apply

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/app/workload"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const (
	// reasonDrift is the reason of the Kubernetes Event about a correction.
	reasonDrift = "DriftCorrected"
	// driftEvery bounds the Events while another client keeps changing the same App. The count in
	// the status still grows.
	driftEvery = time.Minute
	maxFields  = 10
	maxField   = 200
)

// correct applies desired after the cache showed the object missing or different, and counts
// foreign changes. The cache may be older than the agent's last write, so correct asks the API
// server. A difference is the agent's own update if the agent applied another version, or never
// created the object.
func (p *Applier) correct(ctx context.Context, owner *v1alpha1.App, desired client.Object) error {
	have, err := sameType(desired)
	if err != nil {
		return err
	}
	kind := desired.GetObjectKind().GroupVersionKind().Kind
	found := runnerapi.Drift{Object: workload.KindPath(kind, desired.GetName())}
	err = p.store.Live.Get(ctx, client.ObjectKeyFromObject(desired), have)
	switch {
	case apierrors.IsNotFound(err):
		if err := p.Apply(ctx, desired, false); err != nil || !owner.HasMade(found.Object) {
			return err
		}
		found.Deleted = true
		return p.NoteDrift(ctx, owner, found)
	case err != nil:
		return fmt.Errorf("look for %s %s: %w", kind, desired.GetName(), err)
	case !metav1.IsControlledBy(have, owner) && adopts(owner, kind, have):
		return p.adoptObject(ctx, owner, desired, have)
	case !metav1.IsControlledBy(have, owner):
		return Foreign(owner, kind, have)
	}
	if owner.Autoscaled() {
		workload.KeepScale(owner, desired, have)
	}
	// The digest does not include the number of pods within autoscaling bounds, although that
	// changes with the spec.
	own := !owner.Observed() || have.GetAnnotations()[objectmeta.Applied] != desired.GetAnnotations()[objectmeta.Applied]
	if !drifted(desired, have) {
		return take(have, desired)
	}
	found.Fields = differing(desired, have)
	if err := p.ApplyOver(ctx, owner, desired, have); err != nil || own {
		return err
	}
	return p.NoteDrift(ctx, owner, found)
}

// NoteDrift counts a correction in the App's status and reports it. It writes at once: a later
// write may fail with a conflict, and the drift has been corrected by then.
func (p *Applier) NoteDrift(ctx context.Context, a *v1alpha1.App, found runnerapi.Drift) error {
	last := a.Status.Drift
	now := p.now().UTC().Truncate(time.Second)
	quiet := last != nil && now.Sub(last.LastAt) < driftEvery
	p.log.Warn().Str("namespace", a.Namespace).Str("app", a.Name).Str("object", found.Object).
		Bool("deleted", found.Deleted).Strs("fields", found.Fields).Msg("reverted a change to an App's objects")

	count, version := driftOf(last), a.ResourceVersion
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		found.Corrections, found.LastAt = count+1, now
		patched, err := p.patchDrift(ctx, a, version, found)
		if err == nil && version == a.ResourceVersion {
			a.ResourceVersion, a.Status.Drift = patched.ResourceVersion, &found
		}
		if apierrors.IsConflict(err) { // a stays unchanged, so that the reconciler starts again
			fresh, readErr := p.store.GetLive(ctx, a.Key())
			if readErr != nil {
				return readErr
			}
			count, version = driftOf(fresh.Status.Drift), fresh.ResourceVersion
		}
		return err
	})
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	if !quiet {
		p.store.Record(ctx, a, reasonDrift, fmt.Sprintf("undid a change that the agent did not make: %s; %d times so far", found.What(), found.Corrections))
	}
	return nil
}

func driftOf(d *runnerapi.Drift) int64 {
	if d == nil {
		return 0
	}
	return d.Corrections
}

func (p *Applier) patchDrift(ctx context.Context, a *v1alpha1.App, version string, d runnerapi.Drift) (*v1alpha1.App, error) {
	drift := map[string]any{ // every field, so that none remains from the last drift
		"corrections": d.Corrections, "lastAt": d.LastAt, "object": d.Object, "deleted": d.Deleted, "fields": d.Fields,
	}
	raw, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": a.UID, "resourceVersion": version},
		"status":   map[string]any{"drift": drift},
	})
	if err != nil {
		return nil, err
	}
	o := &v1alpha1.App{ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: a.Name}}
	err = p.store.Cached.Status().Patch(ctx, o, client.RawPatch(types.MergePatchType, raw), client.FieldOwner(objectmeta.FieldManager))
	return o, err
}

// differing returns the names of fields that the agent sets and that have another value. It leaves
// out the values, because a variable may be a secret.
func differing(desired, have client.Object) []string {
	var out []string
	want, is := tree(desired), tree(have)
	for _, part := range []string{"labels", "annotations"} {
		compare("metadata."+part, within(want, "metadata", part), within(is, "metadata", part), &out)
	}
	compare("spec", want["spec"], is["spec"], &out)
	slices.Sort(out)
	if len(out) > maxFields {
		out = append(out[:maxFields], "…")
	}
	return out
}

func tree(o client.Object) map[string]any {
	raw, err := json.Marshal(o)
	var out map[string]any
	if err != nil || json.Unmarshal(raw, &out) != nil {
		return nil // impossible: the object was decoded from JSON
	}
	return out
}

func within(t map[string]any, path ...string) any {
	var at any = t
	for _, key := range path {
		m, _ := at.(map[string]any)
		at = m[key]
	}
	return at
}

// compare walks the desired fields; other existing fields belong to others.
func compare(path string, want, have any, out *[]string) {
	switch w := want.(type) {
	case map[string]any:
		h, _ := have.(map[string]any)
		for key, value := range w {
			compare(path+"."+key, value, h[key], out)
		}
	case []any:
		h, _ := have.([]any)
		for i, value := range w {
			compare(path+"["+itemName(value, i)+"]", value, counterpart(value, i, h), out)
		}
	default:
		if want != have && want != nil {
			*out = append(*out, path[:min(len(path), maxField)])
		}
	}
}

// itemName returns a list item's name, or its index.
func itemName(item any, i int) string {
	if m, ok := item.(map[string]any); ok {
		if name, ok := m["name"].(string); ok && name != "" {
			return name
		}
	}
	return fmt.Sprint(i)
}

func counterpart(item any, i int, in []any) any {
	name := itemName(item, i)
	for j, other := range in {
		if itemName(other, j) == name {
			return other
		}
	}
	return nil
}
