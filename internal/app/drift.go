package app

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

	"github.com/pipeops/pipeops-vm-agent/internal/managed"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const (
	// reasonDrift is that of the Event about what was put back.
	reasonDrift = "DriftCorrected"
	// driftEvery bounds the Events while somebody goes on changing the same App;
	// the count in the status goes on.
	driftEvery = time.Minute
	maxFields  = 10
	maxField   = 200
)

// correct makes desired so, after the cache said that it is missing or
// otherwise, and counts what somebody else did. The cache may be older than the
// agent's own last write, so the API server has the last word; and what the
// agent applied otherwise itself, or has not made before, is its own update.
func (e *Engine) correct(ctx context.Context, owner *App, desired client.Object) error {
	have, err := sameType(desired)
	if err != nil {
		return err
	}
	kind := desired.GetObjectKind().GroupVersionKind().Kind
	found := runnerapi.Drift{Object: kindPath(kind, desired.GetName())}
	err = e.live.Get(ctx, client.ObjectKeyFromObject(desired), have)
	switch {
	case apierrors.IsNotFound(err):
		if err := e.apply(ctx, desired, false); err != nil || !owner.made(found.Object) {
			return err
		}
		found.Deleted = true
		return e.noteDrift(ctx, owner, found)
	case err != nil:
		return fmt.Errorf("look for %s %s: %w", kind, desired.GetName(), err)
	case !metav1.IsControlledBy(have, owner) && owner.adopts(kind, have):
		return e.adoptObject(ctx, owner, desired, have)
	case !metav1.IsControlledBy(have, owner):
		return foreignTo(kind, have)
	}
	if owner.scaled() {
		keepScale(owner, desired, have)
	}
	// The number of pods that bounds of autoscaling allow is not in the digest, and
	// changes with the spec all the same.
	own := !owner.observed() || have.GetAnnotations()[managed.Applied] != desired.GetAnnotations()[managed.Applied]
	if !drifted(desired, have) {
		return take(have, desired)
	}
	found.Fields = differing(desired, have)
	if err := e.applyOver(ctx, owner, desired, have); err != nil || own {
		return err
	}
	return e.noteDrift(ctx, owner, found)
}

// made says whether the agent made an object for the very spec that the App has
// now: if so, and it is gone, somebody deleted it.
func (a *App) made(object string) bool {
	return a.observed() && slices.Contains(a.Status.Made, object)
}

// noteDrift counts in the App's status what was put back, and tells of it. It
// writes at once: a status that is written later may be lost to a conflict, and
// by then nothing is left to be seen of the drift.
func (e *Engine) noteDrift(ctx context.Context, a *App, found runnerapi.Drift) error {
	last := a.Status.Drift
	now := e.now().UTC().Truncate(time.Second)
	quiet := last != nil && now.Sub(last.LastAt) < driftEvery
	e.log.Warn().Str("namespace", a.Namespace).Str("app", a.Name).Str("object", found.Object).
		Bool("deleted", found.Deleted).Strs("fields", found.Fields).Msg("put back what somebody changed of an App's objects")

	count, version := driftOf(last), a.ResourceVersion
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		found.Corrections, found.LastAt = count+1, now
		patched, err := e.patchDrift(ctx, a, version, found)
		if err == nil && version == a.ResourceVersion {
			a.ResourceVersion, a.Status.Drift = patched.ResourceVersion, &found
		}
		if apierrors.IsConflict(err) { // a stays as it is, so that the reconciler begins anew
			fresh, readErr := e.getLive(ctx, a.key())
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
		e.record(ctx, a, reasonDrift, fmt.Sprintf("put back what somebody else did: %s; %d times so far", found.What(), found.Corrections))
	}
	return nil
}

func driftOf(d *runnerapi.Drift) int64 {
	if d == nil {
		return 0
	}
	return d.Corrections
}

func (e *Engine) patchDrift(ctx context.Context, a *App, version string, d runnerapi.Drift) (*App, error) {
	drift := map[string]any{ // every field, so that none is left of the drift before
		"corrections": d.Corrections, "lastAt": d.LastAt, "object": d.Object, "deleted": d.Deleted, "fields": d.Fields,
	}
	raw, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": a.UID, "resourceVersion": version},
		"status":   map[string]any{"drift": drift},
	})
	if err != nil {
		return nil, err
	}
	o := &App{ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: a.Name}}
	err = e.cached.Status().Patch(ctx, o, client.RawPatch(types.MergePatchType, raw), client.FieldOwner(managed.FieldManager))
	return o, err
}

// differing are the names of the fields that the agent sets and that have
// another value. The values are nobody's business: a variable may be a secret.
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
		return nil // cannot be: it came from JSON
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

// compare walks what is wanted; what is there beside it is others' own.
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

// itemName is a list's item's name, or its place.
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
