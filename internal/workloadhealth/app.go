package workloadhealth

import (
	"cmp"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// ofApp returns how an App is, by its own status.
func ofApp(u *unstructured.Unstructured) (Report, bool) {
	if u.GroupVersionKind().GroupKind().String() != "App.pipeops.io" {
		return Report{}, false
	}
	var a struct {
		Status runnerapi.AppStatus `json:"status"`
	}
	if runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &a) != nil {
		return Report{State: runnerapi.ObjectUnknown, Message: "its status cannot be understood"}, true
	}
	s := a.Status
	switch seen := s.ObservedGeneration >= u.GetGeneration(); {
	case seen && (s.Phase == runnerapi.PhaseHealthy || s.Phase == runnerapi.PhasePaused):
		return Report{State: runnerapi.ObjectReady}, true
	case seen && s.Diagnosis != nil:
		return Report{State: runnerapi.ObjectFailed, Message: s.Diagnosis.Message, Diagnosis: s.Diagnosis}, true
	}
	waits := "waits for " + cmp.Or(s.WaitingFor, "the agent to look at it")
	return Report{State: runnerapi.ObjectInProgress, Message: waits, LastLines: s.LastLines}, true
}
