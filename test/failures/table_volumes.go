package failures

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func ofVolumes(i Images) []Failure {
	claims := func(class string) runnerapi.AppSpec {
		return as(runnerapi.TypeStatefulSet, with(runs(i.Hello), func(s *runnerapi.AppSpec) {
			s.Volumes = []runnerapi.Volume{{Name: "data", MountPath: "/data", Claim: &runnerapi.VolumeClaim{Size: "1Gi", StorageClass: class}}}
		}))
	}
	uses := func(claim string) runnerapi.AppSpec {
		return with(runs(i.Hello), func(s *runnerapi.AppSpec) {
			s.Volumes = []runnerapi.Volume{{Name: "data", MountPath: "/data", ExistingClaim: claim}}
		})
	}
	asked := Says(1, "ExternalProvisioning")
	return []Failure{
		{
			Name: "no-claim", Spec: uses("nowhere"), Signal: Unscheduled,
			Cause: runnerapi.CauseVolumeNotBound, Object: "pod/", Message: `claim "nowhere"`, Fix: `create PersistentVolumeClaim "nowhere"`,
		},
		{
			Name: "unbound", Spec: uses(unboundClaim), Signal: Unscheduled,
			Cause: runnerapi.CauseVolumeNotBound, Object: "pod/", Message: "claim " + unboundClaim, Fix: "make a PersistentVolume that fits",
		},
		{
			Name: "no-class", Spec: claims("nowhere"), Signal: Says(1, "ProvisioningFailed"),
			Cause: runnerapi.CauseVolumeNotBound, Object: "pod/no-class-0", Message: "nowhere", Fix: "storageClass",
		},
		{
			Name: "no-provisioner", Spec: claims(classAtOnce), Signal: asked,
			Cause: runnerapi.CauseVolumeNotBound, Object: "pod/no-provisioner-0",
			Message: "provisioner nowhere.example.com has not made it", Fix: "see that provisioner nowhere.example.com",
		},
		{
			Name: "no-late-provisioner", Spec: claims(classForConsumer), Signal: asked,
			Cause: runnerapi.CauseVolumeNotBound, Object: "pod/no-late-provisioner-0",
			Message: "provisioner nowhere.example.com has not made it", Fix: "see that provisioner nowhere.example.com",
		},
		{
			Name: "no-driver", Spec: runs(i.Hello), NoApp: "an App has no volumes of drivers",
			Change: pod(func(p *corev1.PodSpec) {
				p.Volumes = append(p.Volumes, corev1.Volume{Name: "disk", VolumeSource: corev1.VolumeSource{
					CSI: &corev1.CSIVolumeSource{Driver: "nowhere.example.com"},
				}})
				p.Containers[0].VolumeMounts = append(p.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "disk", MountPath: "/disk"})
			}),
			Signal: Says(1, "FailedMount"), Cause: runnerapi.CauseVolumeNotBound, Object: "pod/",
			Message: "nowhere.example.com", Fix: "make the volume usable",
		},
	}
}
