package workload

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// volumes returns the pods' volumes but for those that a StatefulSet claims.
func volumes(a *v1alpha1.App) []corev1.Volume {
	out := make([]corev1.Volume, 0, len(a.Spec.Volumes)+len(a.Spec.Files))
	for _, v := range a.Spec.Volumes {
		volume := corev1.Volume{Name: v.Name}
		switch {
		case v.EmptyDir != nil:
			volume.EmptyDir = emptyDir(v.EmptyDir)
		case v.ExistingClaim != "":
			volume.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: v.ExistingClaim}
		default:
			continue
		}
		out = append(out, volume)
	}
	for i, f := range a.Spec.Files {
		out = append(out, fileVolume(i, f))
	}
	return out
}

func emptyDir(e *runnerapi.EmptyDir) *corev1.EmptyDirVolumeSource {
	out := &corev1.EmptyDirVolumeSource{}
	if e.Memory {
		out.Medium = corev1.StorageMediumMemory
	}
	if size, ok := Quantity(e.Size); ok {
		out.SizeLimit = new(size)
	}
	return out
}

func fileVolumeName(i int) string { return fmt.Sprintf("%sfile-%d", runnerapi.ReservedPrefix, i) }

func fileVolume(i int, f runnerapi.File) corev1.Volume {
	out := corev1.Volume{Name: fileVolumeName(i)}
	var items []corev1.KeyToPath
	if key := fileKey(f); key != "" {
		items = []corev1.KeyToPath{{Key: key, Path: key}}
	}
	if f.Secret != nil {
		out.Secret = &corev1.SecretVolumeSource{SecretName: f.Secret.Name, Items: items}
	} else {
		out.ConfigMap = &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: f.ConfigMap.Name}, Items: items,
		}
	}
	return out
}

func fileKey(f runnerapi.File) string {
	if f.Secret != nil {
		return f.Secret.Key
	}
	return f.ConfigMap.Key
}

// mounts returns where the containers find them.
func mounts(a *v1alpha1.App) []corev1.VolumeMount {
	out := make([]corev1.VolumeMount, 0, len(a.Spec.Volumes)+len(a.Spec.Files))
	for _, v := range a.Spec.Volumes {
		out = append(out, corev1.VolumeMount{Name: v.Name, MountPath: v.MountPath, ReadOnly: v.ReadOnly})
	}
	for i, f := range a.Spec.Files { // one file is mounted alone: what else is in its directory stays
		out = append(out, corev1.VolumeMount{Name: fileVolumeName(i), MountPath: f.Path, SubPath: fileKey(f), ReadOnly: true})
	}
	return out
}

// claims returns what each pod of a StatefulSet gets a volume by.
func claims(a *v1alpha1.App) []corev1.PersistentVolumeClaim {
	var out []corev1.PersistentVolumeClaim
	for _, v := range a.Spec.Volumes {
		if v.Claim == nil {
			continue
		}
		mode := cmp.Or(corev1.PersistentVolumeAccessMode(v.Claim.AccessMode), corev1.ReadWriteOnce)
		size, _ := Quantity(v.Claim.Size)
		claim := corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: v.Name, Labels: objectmeta.AppLabels(a.Name)},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{mode},
				Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: size}},
			},
		}
		if v.Claim.StorageClass != "" {
			claim.Spec.StorageClassName = new(v.Claim.StorageClass)
		}
		out = append(out, claim)
	}
	return out
}
