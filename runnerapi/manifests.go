package runnerapi

import (
	"time"
)

// ApplyOptions are how to apply a set.
type ApplyOptions struct {
	WriteOptions
	NoPrune bool // what left the set stays in the cluster, and in the inventory
	Diff    bool // report the changes
	// ForceConflicts takes over fields that others have set.
	ForceConflicts bool
	Wait           time.Duration // for all objects to be ready
	// Admit is called for each object that is to be applied or deleted, with its namespace, which
	// is empty for a cluster-scoped one. For a deletion the intent contains only the kind.
	Admit func(namespace string, o ObjectIntent) error `json:"-"`
	// Read hears which objects there are, once they are known.
	Read func([]ManifestRef) `json:"-"`
}

// ManifestRef names an object of any kind.
type ManifestRef struct {
	APIVersion string `json:"apiVersion" example:"apps/v1"`
	Kind       string `json:"kind" example:"Deployment"`
	Namespace  string `json:"namespace,omitempty" doc:"Absent for what is in no namespace."`
	Name       string `json:"name" example:"web"`
}

// String returns KIND/NAME, with the namespace if there is one.
func (r ManifestRef) String() string {
	if r.Namespace == "" {
		return r.Kind + "/" + r.Name
	}
	return r.Kind + "/" + r.Namespace + "/" + r.Name
}

// ApplyAction is what happened to an object.
type ApplyAction string

// What can become of an object.
const (
	ApplyCreated    ApplyAction = "created"
	ApplyConfigured ApplyAction = "configured"
	ApplyUnchanged  ApplyAction = "unchanged"
	ApplyPruned     ApplyAction = "pruned" // deleted, because it left the set, or with the set
	ApplyKept       ApplyAction = "kept"   // it left the set, and is there: it was not to be pruned, or is not the set's any more
	ApplyFailed     ApplyAction = "failed"
)

// ObjectState is how an object of a set is.
type ObjectState string

// How an object can be.
const (
	ObjectReady      ObjectState = "ready"
	ObjectInProgress ObjectState = "inProgress"
	ObjectFailed     ObjectState = "failed" // something is wrong with it, or it will not become ready by itself
	ObjectMissing    ObjectState = "missing"
	ObjectUnknown    ObjectState = "unknown" // it could not be read
)

// ApplyResult is what became of a set.
type ApplyResult struct {
	Namespace string          `json:"namespace"`
	Name      string          `json:"name" doc:"Name of the set."`
	DryRun    bool            `json:"dryRun,omitempty" doc:"Nothing was done: this is what would be."`
	Objects   []AppliedObject `json:"objects" doc:"In the order in which they were applied, then those that left the set."`
	Problem   *Error          `json:"problem,omitempty" doc:"Why the inventory could not be brought up to date in the end. It names everything that is there; apply again."`
	Failed    int             `json:"failed" doc:"How many of them could not be applied or deleted."`
	Ready     bool            `json:"ready" doc:"None failed and all that are applied are ready."`
}

// AppliedObject is what became of one object.
type AppliedObject struct {
	ManifestRef
	Action  ApplyAction `json:"action" enum:"created,configured,unchanged,pruned,kept,failed"`
	Problem *Error      `json:"problem,omitempty" doc:"Why it failed."`
	State   ObjectState `json:"state,omitempty" enum:"ready,inProgress,failed,missing,unknown" doc:"How it is; absent for what is gone, and in a dry run."`
	Message string      `json:"message,omitempty" doc:"What it waits for, or what there is to know."`
	// Warnings are those of kubectl's client-side apply.
	Warnings []string `json:"warnings,omitempty" doc:"List entries of the manifest that were left out, because a later one has the same key."`
	// Diagnosis is of what runs pods.
	Diagnosis *Diagnosis `json:"diagnosis,omitempty" doc:"What is wrong with it, where it runs pods."`
	LastLines []string   `json:"lastLines,omitempty" doc:"Last lines of the init container that the message names."`
	Diff      string     `json:"diff,omitempty" doc:"What changes, as a unified diff. Values of Secrets are masked."`
}

// ManifestSet is a set of manifests.
type ManifestSet struct {
	Namespace string      `json:"namespace"`
	Name      string      `json:"name"`
	Count     int         `json:"count" doc:"How many objects it holds."`
	Complete  bool        `json:"complete" doc:"The last apply came to its end. If not, the inventory may name objects that were never made."`
	AppliedAt time.Time   `json:"appliedAt,omitzero"`
	AppliedBy string      `json:"appliedBy,omitempty" doc:"Runner that applied it last."`
	Ready     *bool       `json:"ready,omitempty" doc:"All objects are ready. Absent in lists."`
	Objects   []SetObject `json:"objects,omitempty" doc:"Absent in lists."`
}

// SetObject is an object of a set, as it is.
type SetObject struct {
	ManifestRef
	State   ObjectState `json:"state" enum:"ready,inProgress,failed,missing,unknown"`
	Message string      `json:"message,omitempty"`
	// Diagnosis is of what runs pods.
	Diagnosis *Diagnosis `json:"diagnosis,omitempty" doc:"What is wrong with it, where it runs pods."`
	LastLines []string   `json:"lastLines,omitempty" doc:"Last lines of the init container that the message names."`
}

// ManifestSetList is the answer of the list call.
type ManifestSetList struct {
	Items []ManifestSet `json:"items"`
	Page
}

// Settled reports whether all objects are ready, or one will not become so.
func (s ManifestSet) Settled() bool {
	settled := true
	for _, o := range s.Objects {
		if o.State == ObjectFailed {
			return true
		}
		settled = settled && o.State == ObjectReady
	}
	return settled
}
