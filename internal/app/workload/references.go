package workload

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Reference is a Secret or a ConfigMap that an App uses.
type Reference struct {
	Kind runnerapi.RestartTrigger
	Name string
}

// References returns the objects whose change restarts the App, in a fixed order. They are read off
// the pods that the App becomes, so no part of its spec can be forgotten here. Secrets to pull
// images with are not among them: a pod that runs has its image.
func References(a *v1alpha1.App) []Reference {
	if len(a.Spec.RestartOn) == 0 {
		return nil
	}
	children, err := Children(a)
	if err != nil { // the App is refused for it
		return nil
	}
	var refs []Reference
	for _, o := range children {
		if t := TemplateOf(o); t != nil {
			refs = append(refs, referencesOf(t.Spec)...)
		}
	}
	refs = slices.DeleteFunc(refs, func(r Reference) bool { return r.Name == "" || !slices.Contains(a.Spec.RestartOn, r.Kind) })
	slices.SortFunc(refs, func(x, y Reference) int {
		return cmp.Or(strings.Compare(string(x.Kind), string(y.Kind)), strings.Compare(x.Name, y.Name))
	})
	return slices.Compact(refs)
}

func referencesOf(pod corev1.PodSpec) []Reference {
	var refs []Reference
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		refs = append(refs, ofContainer(c)...)
	}
	for _, v := range pod.Volumes {
		if v.Secret != nil {
			refs = append(refs, Reference{runnerapi.RestartOnSecrets, v.Secret.SecretName})
		}
		if v.ConfigMap != nil {
			refs = append(refs, Reference{runnerapi.RestartOnConfigMaps, v.ConfigMap.Name})
		}
		if v.Projected == nil {
			continue
		}
		for _, s := range v.Projected.Sources {
			if s.Secret != nil {
				refs = append(refs, Reference{runnerapi.RestartOnSecrets, s.Secret.Name})
			}
			if s.ConfigMap != nil {
				refs = append(refs, Reference{runnerapi.RestartOnConfigMaps, s.ConfigMap.Name})
			}
		}
	}
	return refs
}

func ofContainer(c corev1.Container) []Reference {
	var refs []Reference
	for _, from := range c.EnvFrom {
		if from.SecretRef != nil {
			refs = append(refs, Reference{runnerapi.RestartOnSecrets, from.SecretRef.Name})
		}
		if from.ConfigMapRef != nil {
			refs = append(refs, Reference{runnerapi.RestartOnConfigMaps, from.ConfigMapRef.Name})
		}
	}
	for _, v := range c.Env {
		if v.ValueFrom == nil {
			continue
		}
		if ref := v.ValueFrom.SecretKeyRef; ref != nil {
			refs = append(refs, Reference{runnerapi.RestartOnSecrets, ref.Name})
		}
		if ref := v.ValueFrom.ConfigMapKeyRef; ref != nil {
			refs = append(refs, Reference{runnerapi.RestartOnConfigMaps, ref.Name})
		}
	}
	return refs
}
