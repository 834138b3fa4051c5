package runnerapi

import (
	"encoding/json"
	"fmt"
)

// The bounds of an App's patches: their number, and their size together in bytes as JSON. What they
// become is compared item by item.
const maxPatches, maxPatchBytes = 8, 16 << 10

// Patch changes an object that an App becomes, for what the App's own fields cannot express. See
// https://kubernetes.io/docs/tasks/manage-kubernetes-objects/update-api-object-kubectl-patch/.
type Patch struct {
	Target PatchTarget    `json:"target,omitzero" doc:"Which object of the App: the one that runs its pods when absent."`
	Patch  map[string]any `json:"patch" nullable:"false" minProperties:"1" doc:"Strategic merge patch of the object, with metadata and spec as in Kubernetes. The App's own container has the App's name."`
}

// PatchTarget selects an object that an App becomes.
//
// +kubebuilder:object:generate=true
type PatchTarget struct {
	Kind string `json:"kind,omitempty" enum:"Deployment,StatefulSet,DaemonSet,Job,CronJob,Service,HorizontalPodAutoscaler"`
}

// DeepCopyInto copies the patch.
func (p *Patch) DeepCopyInto(out *Patch) {
	*out = *p
	out.Patch, _ = copied(p.Patch).(map[string]any)
}

// copied returns a deep copy of a value as JSON decodes it.
func copied(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if v == nil {
			return v
		}
		out := make(map[string]any, len(v))
		for key, value := range v {
			out[key] = copied(value)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = copied(v[i])
		}
		return out
	}
	return v
}

// CheckPatches returns what is wrong with the number and the size of patches. The agent checks the
// rest when it renders the App's objects.
func CheckPatches(all []Patch) []FieldError {
	v := &validation{}
	if len(all) > maxPatches {
		v.add("patches", "are more than %d: join some", maxPatches)
	}
	size := 0
	for i, p := range all[:min(len(all), maxPatches)] {
		field := fmt.Sprintf("patches[%d].patch", i)
		raw, err := json.Marshal(p.Patch)
		size += len(raw)
		switch {
		case err != nil:
			v.add(field, "is not an object of JSON")
		case len(p.Patch) == 0:
			v.add(field, "is empty")
		case size > maxPatchBytes:
			v.add(field, "the patches are larger than %d bytes together", maxPatchBytes)
			return v.errs
		}
	}
	return v.errs
}
