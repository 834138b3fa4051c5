package workload

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Figures are the numbers of pods that a workload's controller reports, in the same form for every
// kind.
type Figures struct {
	Seen                                         bool // they speak of the newest spec
	Desired, Replicas, Updated, Ready, Available int32
	Misplaced                                    int32 // pods of a DaemonSet where none belongs
}

// FiguresOf returns the figures of a workload; none for nil.
func FiguresOf(w client.Object) Figures {
	switch w := w.(type) {
	case *appsv1.Deployment:
		s := w.Status
		return Figures{
			Seen: s.ObservedGeneration >= w.Generation, Desired: ptr.Deref(w.Spec.Replicas, 1),
			Replicas: s.Replicas, Updated: s.UpdatedReplicas, Ready: s.ReadyReplicas, Available: s.AvailableReplicas,
		}
	case *appsv1.StatefulSet:
		s := w.Status
		return Figures{
			Seen: s.ObservedGeneration >= w.Generation, Desired: ptr.Deref(w.Spec.Replicas, 1),
			Replicas: s.Replicas, Updated: s.UpdatedReplicas, Ready: s.ReadyReplicas, Available: s.AvailableReplicas,
		}
	case *appsv1.DaemonSet:
		s := w.Status
		return Figures{
			Seen: s.ObservedGeneration >= w.Generation, Desired: s.DesiredNumberScheduled,
			Replicas: s.CurrentNumberScheduled, Updated: s.UpdatedNumberScheduled,
			Ready: s.NumberReady, Available: s.NumberAvailable, Misplaced: s.NumberMisscheduled,
		}
	case *batchv1.Job:
		ready := ptr.Deref(w.Status.Ready, 0)
		return Figures{
			Seen: true, Desired: w.Status.Active, Replicas: w.Status.Active, Updated: w.Status.Active,
			Ready: ready, Available: ready,
		}
	case *batchv1.CronJob:
		n := int32(len(w.Status.Active)) //nolint:gosec // runs at a time
		return Figures{Seen: true, Desired: n, Replicas: n, Updated: n}
	}
	return Figures{}
}

// Complete reports whether every pod is of the newest spec and available, and none other is left.
func (f Figures) Complete() bool {
	return f.Seen && f.Replicas == f.Desired && f.Updated == f.Desired && f.Ready == f.Desired &&
		f.Available == f.Desired && f.Misplaced == 0
}
