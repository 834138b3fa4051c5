package v1alpha1

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// GroupVersion of the App resource.
var GroupVersion = schema.GroupVersion{Group: "pipeops.io", Version: "v1alpha1"}

// Names of the App resource.
const (
	Kind    = "App"
	Plural  = "apps"
	CRDName = Plural + ".pipeops.io"
)

// SchemaVersion counts changes of the App's schema. The CustomResourceDefinition carries it, so
// that an agent that finds an older one reports that and does not lose its fields. A newer one is
// fine: that is a rollback of the agent.
const SchemaVersion = 16

// SchemaVersionAnnotation is where the CustomResourceDefinition carries it.
const SchemaVersionAnnotation = "pipeops.io/schema-version"

// App is the custom resource.
//
// +kubebuilder:object:root=true
type App struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   runnerapi.AppSpec `json:"spec"`
	Status Status            `json:"status,omitzero"`
}

// List is a list of Apps.
//
// +kubebuilder:object:root=true
type List struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []App `json:"items"`
}

// Status is what a Runner is told, and what the agent has to remember of the
// App over its own restarts.
//
// +kubebuilder:object:generate=true
type Status struct {
	runnerapi.AppStatus // without a tag: the schema generator takes one for its own field

	Selector        string        `json:"selector,omitempty" doc:"Label selector of the App's pods, for the scale subresource."`
	ObservedRestart string        `json:"observedRestart,omitempty" doc:"The restart that this status speaks of."`
	Healthy         []int64       `json:"healthyRevisions,omitempty" doc:"Revisions that were healthy and did not crash since, the newest last: where an automatic rollback may go."`
	StableRevision  int64         `json:"stableRevision,omitempty" doc:"The last revision whose rollout succeeded, whatever became of it later."`
	Stopped         *Stopped      `json:"stopped,omitempty" doc:"Why the agent keeps this spec from being rolled out."`
	Outcomes        []Settlement  `json:"outcomes,omitempty" doc:"How the last changes and restarts came out."`
	Announced       *Announced    `json:"announced,omitempty" doc:"What was announced last."`
	Unannounced     []Transition  `json:"unannounced,omitempty" doc:"The last changes that are to be announced, in order: those with a sequence past that of announced."`
	Made            []string      `json:"made,omitempty" doc:"Objects that the agent made for this spec, as kind/name. A missing one was deleted by another client."`
	JobsRun         string        `json:"jobsRun,omitempty" doc:"Digest of the Pipeline's run that its jobs' states speak of."`
	Finished        string        `json:"finished,omitempty" doc:"Digest of the Job or Pipeline that ran to its end, so that it does not run again."`
	Sizing          *SizingStatus `json:"sizing,omitempty" doc:"What right-sizing measured and did."`
}

// Stopped is a rollout that the agent stopped, until there is another spec or restart.
//
// +kubebuilder:object:generate=true
type Stopped struct {
	Generation int64               `json:"generation"`
	Restart    string              `json:"restart,omitempty"`
	Diagnosis  runnerapi.Diagnosis `json:"diagnosis"`
}

// Settlement is the outcome of a generation, or a restart, of an App.
//
// +kubebuilder:object:generate=true
type Settlement struct {
	Generation int64                `json:"generation"`
	Restart    string               `json:"restart,omitempty"`
	Phase      runnerapi.Phase      `json:"phase"`
	Diagnosis  *runnerapi.Diagnosis `json:"diagnosis,omitempty"`
}

// SizingStatus is what right-sizing must not lose when the agent restarts.
//
// +kubebuilder:object:generate=true
type SizingStatus struct {
	Containers []ContainerHistory `json:"containers,omitempty" doc:"Measurements of each container."`
	Applied    *AppliedSizing     `json:"applied,omitempty" doc:"The requests that are applied now."`
	Waiting    string             `json:"waiting,omitempty" doc:"Why nothing is applied now."`
}

// ContainerHistory is a container's measurements in a compact form.
//
// +kubebuilder:object:generate=true
type ContainerHistory struct {
	Name    string `json:"name"`
	History string `json:"history" doc:"A day's measurements each: the day, then how often CPU and memory were in which bucket."`
}

// How a recommendation is applied.
const (
	ByResize  = "Resize"  // the pods that run, in place
	ByRollout = "Rollout" // a new pod template, and so new pods
)

// AppliedSizing are the requests of the App's own container.
//
// +kubebuilder:object:generate=true
type AppliedSizing struct {
	By     string `json:"by" enum:"Resize,Rollout" doc:"In place, or by a new pod template."`
	At     string `json:"at" doc:"When (RFC 3339)."`
	CPU    int64  `json:"cpu" doc:"In thousandths of a core."`
	Memory int64  `json:"memory" doc:"In bytes."`
}

// Announced is what the control plane was told last of an App.
//
// +kubebuilder:object:generate=true
type Announced struct {
	Phase      runnerapi.Phase `json:"phase"`
	Generation int64           `json:"generation"`
	Cause      runnerapi.Cause `json:"cause,omitempty"`
	Restart    string          `json:"restart,omitempty" doc:"The restart that was announced last."`
	Sequence   int64           `json:"sequence" doc:"Counts the announcements of this App."`
}

// Transition is a change of an App's state, as it is to be announced.
//
// +kubebuilder:object:generate=true
type Transition struct {
	Announced // without a tag, as in Status

	At       string `json:"at" doc:"When (RFC 3339)."`
	Image    string `json:"image,omitempty"`
	Replicas int32  `json:"replicas" doc:"Asked for."`
	Ready    int32  `json:"ready"`
	Message  string `json:"message,omitempty"`
	Fix      string `json:"fix,omitempty"`

	Undid runnerapi.Cause `json:"undid,omitempty" doc:"Why the revision before was taken back."`
}

// defaultReplicas is the number of pods of a spec that names none.
const defaultReplicas = 1

// AddToScheme registers the App resource.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypeWithName(GroupVersion.WithKind(Kind), &App{})
	s.AddKnownTypeWithName(GroupVersion.WithKind(Kind+"List"), &List{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// Wire returns the App as a Runner sees it. It marks a status that does not describe the newest
// spec or restart yet as such.
func (a *App) Wire() runnerapi.App {
	w := runnerapi.App{
		Namespace: a.Namespace, Name: a.Name, Generation: a.Generation,
		CreatedAt: a.CreationTimestamp.Time, Spec: *a.Spec.DeepCopy(), Status: *a.Status.AppStatus.DeepCopy(),
		UID: string(a.UID), RestartedAt: a.RestartedAt(),
	}
	w.Status.ObservedGeneration = max(0, w.Status.ObservedGeneration) // the schema's default is for kstatus
	switch {
	case !a.DeletionTimestamp.IsZero():
		if w.Status.Phase != runnerapi.PhaseDeleting {
			w.Status.WaitingFor = "its objects to be deleted"
		}
		w.Status.Phase, w.Status.Diagnosis = runnerapi.PhaseDeleting, nil
	case !a.Observed() || w.Status.Phase == "":
		w.Status.Phase, w.Status.Diagnosis = runnerapi.PhaseProgressing, nil
	}
	return w
}

// Observed reports whether the status speaks of the newest spec and restart.
func (a *App) Observed() bool {
	return a.Status.ObservedGeneration >= a.Generation && a.Status.ObservedRestart == a.RestartedAt() &&
		a.DeletionTimestamp.IsZero()
}

// Key names the App.
func (a *App) Key() runnerapi.Key { return runnerapi.Key{Namespace: a.Namespace, Name: a.Name} }

// RestartedAt returns when the App was last asked to restart, or empty.
func (a *App) RestartedAt() string { return a.Annotations[objectmeta.RestartedAt] }

// HasMade reports whether the agent made an object for the App's current spec. If it did and the
// object is gone, another client deleted it.
func (a *App) HasMade(object string) bool {
	return a.Observed() && slices.Contains(a.Status.Made, object)
}

// IsStopped reports whether the newest spec and restart are kept from being rolled out.
func (a *App) IsStopped() bool {
	s := a.Status.Stopped
	return s != nil && s.Generation == a.Generation && s.Restart == a.RestartedAt()
}

// Replicas returns the number of pods in the spec.
func (a *App) Replicas() int32 { return ptr.Deref(a.Spec.Replicas, defaultReplicas) }

// Autoscaled reports whether the autoscaler controls the number of pods.
func (a *App) Autoscaled() bool {
	return a.Spec.Autoscaling != nil && a.Spec.Type != runnerapi.TypeDaemonSet
}

// RollbackTarget returns the revision that an automatic rollback restores: the newest one before
// this that was healthy and did not crash later; 0 for none.
func (a *App) RollbackTarget() int64 {
	for _, r := range slices.Backward(a.Status.Healthy) {
		if r < a.Status.Revision {
			return r
		}
	}
	return 0
}
