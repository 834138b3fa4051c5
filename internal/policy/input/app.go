// Package input determines what a command brings into the cluster, as far as a policy can bound
// it: images, numbers of pods, limits, hosts, nodes and annotations, of Apps and of objects of any
// kind. It is the only place for that, so that Apps, sets, releases and Git sources are bounded
// alike. Package policy makes the decisions.
package input

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// App returns what the spec of an App, a Job or a Pipeline brings. Fields are those of the spec.
func App(s runnerapi.AppSpec) runnerapi.ObjectIntent {
	in := runnerapi.ObjectIntent{PullSecrets: s.ImagePullSecrets}
	in.Counts = counts(s)
	if s.Type != runnerapi.TypePipeline || s.Image != "" {
		own := runnerapi.ContainerIntent{Image: s.Image, Limits: s.Resources.Limits}
		own.Partial = s.Type == runnerapi.TypePipeline // its limits are for jobs that have none
		in.Containers = append(in.Containers, own)
	}
	for n, j := range s.Jobs {
		spec := s.JobSpec(j)
		in.Containers = append(in.Containers, runnerapi.ContainerIntent{
			Field: fmt.Sprintf("jobs[%d]", n), Name: j.Name, Image: spec.Image, Limits: spec.Resources.Limits,
		})
	}
	for n, c := range s.InitContainers {
		image := cmp.Or(c.Image, s.Image)
		if image == "" && len(s.Jobs) > 0 {
			image = s.Jobs[0].Image // of a Pipeline each job's
		}
		in.Containers = append(in.Containers, runnerapi.ContainerIntent{
			Field: fmt.Sprintf("initContainers[%d]", n), Name: c.Name, Image: image, Limits: c.Resources.Limits,
		})
	}
	if s.Ingress != nil {
		for n, h := range s.Ingress.Hosts {
			in.Hosts = append(in.Hosts, runnerapi.NameIntent{Field: fmt.Sprintf("ingress.hosts[%d].host", n), Name: h.Host})
		}
		if s.Ingress.Public {
			in.Public = "ingress.public"
		}
		for n, p := range s.Ingress.Ports {
			in.Ports = append(in.Ports, runnerapi.PortIntent{Field: fmt.Sprintf("ingress.ports[%d]", n), Port: p.PublicPort, Protocol: cmp.Or(p.Protocol, "TCP")})
		}
		in.Protected, in.SignedIn = s.Ingress.Protects(), s.Ingress.SignsIn()
		in.Annotations = named("ingress.annotations", s.Ingress.Annotations)
	}
	in.Placement = placementOf(s)
	in.Annotations = append(in.Annotations, named("podAnnotations", s.PodAnnotations)...)
	return in
}

func counts(s runnerapi.AppSpec) (all []runnerapi.CountIntent) {
	if s.Replicas != nil {
		all = append(all, runnerapi.CountIntent{Field: "replicas", Pods: *s.Replicas})
	}
	if s.Autoscaling != nil {
		all = append(all, runnerapi.CountIntent{Field: "autoscaling.max", Pods: s.Autoscaling.Max})
	}
	if s.Job != nil {
		all = append(all, runnerapi.CountIntent{Field: "job.parallelism", Pods: s.Job.Parallelism})
	}
	return all
}

func named[V any](field string, keys map[string]V) (all []runnerapi.NameIntent) {
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		all = append(all, runnerapi.NameIntent{Field: field + "." + key, Name: key})
	}
	return all
}
