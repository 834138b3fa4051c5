package diagnose

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const asked = "Waiting for a volume to be created either by the external provisioner 'ebs.csi.aws.com' or manually by the system administrator."

// claiming is a pod that waits for claim data-db-0, as far as its condition says anything.
func claiming(age time.Duration, conditions ...corev1.PodCondition) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "db-0", UID: "1", CreationTimestamp: ago(age)}, Status: corev1.PodStatus{Phase: corev1.PodPending}}
	p.Spec.SchedulerName = corev1.DefaultSchedulerName
	p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-db-0"}}}}
	for i := range conditions {
		conditions[i].Type, conditions[i].Status, conditions[i].LastTransitionTime = corev1.PodScheduled, corev1.ConditionFalse, ago(age)
	}
	p.Status.Conditions = conditions
	return p
}

// TestVolume_SameTimeForAll has storage classes that bind a volume at once, and some that wait for
// the first consumer, whose scheduler reports nothing meanwhile.
func TestVolume_SameTimeForAll(t *testing.T) {
	set := &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{
		ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: new("gp3")},
	}}}}
	for name, conditions := range map[string][]corev1.PodCondition{
		"at once":                              {{Reason: corev1.PodReasonUnschedulable, Message: "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims."}},
		"the first consumer":                   nil,
		"the first consumer, before its claim": {{Reason: corev1.PodReasonUnschedulable, Message: `0/1 nodes are available: persistentvolumeclaim "data-db-0" not found.`}},
		"given up": {{
			Reason:  corev1.PodReasonSchedulerError,
			Message: `running PreBind plugin "VolumeBinding": binding volumes: context deadline exceeded`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			find := func(age time.Duration, c Claim) Finding {
				pod := claiming(age, append([]corev1.PodCondition(nil), conditions...)...)
				claims, _ := UnboundClaims(pod)
				assert.Equal(t, []string{"data-db-0"}, claims)
				return Find(Evidence{Pods: []*corev1.Pod{pod}, StatefulSet: set, Claims: map[types.UID]Claim{"1": c}, Now: now})
			}
			waits := Claim{Name: "data-db-0", Message: asked, Waits: true}
			slow := find(2*time.Minute-time.Second, waits)
			assert.Nil(t, slow.Diagnosis, "a healthy provisioner may be slow")
			assert.Equal(t, time.Second, slow.Recheck)

			d := find(2*time.Minute, waits).Diagnosis
			require.NotNil(t, d)
			assert.Equal(t, runnerapi.CauseVolumeNotBound, d.Cause)
			assert.Equal(t, "no volume is there for claim data-db-0 (storage class gp3) after 2m0s: provisioner ebs.csi.aws.com has not made it", d.Message)
			assert.Contains(t, d.Fix, "provisioner ebs.csi.aws.com of storage class gp3 runs")
			checkFix(t, d)

			d = find(2*time.Minute, Claim{}).Diagnosis
			require.NotNil(t, d, "though the cluster says nothing")
			assert.Contains(t, d.Message, "claim data-db-0 (storage class gp3) after 2m0s")

			failed := Claim{Name: "data-db-0", Message: `storageclass.storage.k8s.io "gp3" not found`}
			d = find(31*time.Second, failed).Diagnosis
			require.NotNil(t, d, "a failure is reported immediately")
			assert.Contains(t, d.Message, `"gp3" not found`)
		})
	}
}
