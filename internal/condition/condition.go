// Package condition writes the conditions by which Kubernetes' tools read the state of an object of
// any kind: kubectl wait, kstatus, and so Flux and Helm.
package condition

import (
	"slices"
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Progress is how an object stands to its spec.
type Progress string

// What kstatus distinguishes.
const (
	Current    Progress = ""                                       // the spec is fulfilled
	InProgress Progress = Progress(runnerapi.ConditionReconciling) // it will be
	Failed     Progress = Progress(runnerapi.ConditionStalled)     // not without help
)

// Summary returns Ready, and beside a Ready that is False the reason for it: Reconciling or
// Stalled. Those two exist only while they are True, as kstatus recommends
// (https://github.com/kubernetes-sigs/cli-utils/blob/master/pkg/kstatus/README.md).
func Summary(p Progress, reason, message string) []runnerapi.Condition {
	ready := runnerapi.Condition{Type: runnerapi.ConditionReady, Status: "True", Reason: reason, Message: message}
	if p == Current {
		return []runnerapi.Condition{ready}
	}
	why := ready
	ready.Status, why.Type = "False", runnerapi.ConditionType(p)
	return []runnerapi.Condition{ready, why}
}

// Dated marks conditions of a generation. The time of a transition stays while the condition's
// status does.
func Dated(conditions, before []runnerapi.Condition, generation int64, now time.Time) []runnerapi.Condition {
	for i := range conditions {
		c := &conditions[i]
		c.ObservedGeneration, c.LastTransitionTime = generation, now.UTC().Format(time.RFC3339)
		same := func(b runnerapi.Condition) bool { return b.Type == c.Type && b.Status == c.Status }
		if j := slices.IndexFunc(before, same); j >= 0 && before[j].LastTransitionTime != "" {
			c.LastTransitionTime = before[j].LastTransitionTime
		}
	}
	return conditions
}
