package sizing

import (
	"cmp"
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Metrics returns what an App uses now and what it requests.
func (s *Sizer) Metrics(ctx context.Context, key runnerapi.Key) (runnerapi.AppMetrics, error) {
	if err := s.store.Admit(ctx, key.Namespace); err != nil {
		return runnerapi.AppMetrics{}, err
	}
	a, err := s.store.Get(ctx, key)
	if err != nil {
		return runnerapi.AppMetrics{}, err
	}
	used, err := s.usage(ctx, key.Namespace, key.Name)
	if err != nil {
		return runnerapi.AppMetrics{}, err
	}
	pods, err := s.store.Pods(ctx, a)
	if err != nil {
		return runnerapi.AppMetrics{}, err
	}
	s.take(a, pods, used)
	m := runnerapi.AppMetrics{
		Namespace: key.Namespace, Name: key.Name,
		Containers: []runnerapi.ContainerMetrics{}, Pods: []runnerapi.PodMetrics{}, Sizing: s.tell(a),
	}
	for _, pod := range pods {
		if u, ok := used[pod.Name]; ok {
			m.Pods = append(m.Pods, metricsOf(pod, u))
		}
	}
	slices.SortFunc(m.Pods, func(a, b runnerapi.PodMetrics) int { return cmp.Compare(a.Pod, b.Pod) })
	m.Containers = sumUp(m.Pods)
	return m, nil
}

func metricsOf(pod *corev1.Pod, u podUse) runnerapi.PodMetrics {
	m := runnerapi.PodMetrics{Pod: pod.Name, Time: u.at, Window: u.window, Containers: []runnerapi.ContainerUse{}}
	for _, c := range pod.Spec.Containers {
		figures, ok := u.containers[c.Name]
		if !ok {
			continue
		}
		r := actual(pod, c)
		m.Containers = append(m.Containers, runnerapi.ContainerUse{
			Name:   c.Name,
			CPU:    useOf(figures.cpu, r, corev1.ResourceCPU, (*resource.Quantity).MilliValue),
			Memory: useOf(figures.memory, r, corev1.ResourceMemory, (*resource.Quantity).Value),
		})
	}
	return m
}

// actual returns the resources that a container has, which after a resize in place may still be
// others than it asks for.
func actual(pod *corev1.Pod, c corev1.Container) corev1.ResourceRequirements {
	for _, s := range pod.Status.ContainerStatuses {
		if s.Name == c.Name && s.Resources != nil {
			return *s.Resources
		}
	}
	return c.Resources
}

func useOf(used int64, r corev1.ResourceRequirements, name corev1.ResourceName, value func(*resource.Quantity) int64) runnerapi.UseOfPod {
	out := runnerapi.UseOfPod{Used: used}
	if q, ok := r.Requests[name]; ok {
		v := value(&q)
		out.Request = &v
	}
	if q, ok := r.Limits[name]; ok {
		v := value(&q)
		out.Limit = &v
	}
	return out
}

// sumUp joins the pods' figures per container, in the order of the pods'.
func sumUp(pods []runnerapi.PodMetrics) []runnerapi.ContainerMetrics {
	out := []runnerapi.ContainerMetrics{}
	for _, pod := range pods {
		for _, c := range pod.Containers {
			i := slices.IndexFunc(out, func(m runnerapi.ContainerMetrics) bool { return m.Name == c.Name })
			if i < 0 {
				i = len(out)
				out = append(out, runnerapi.ContainerMetrics{Name: c.Name})
			}
			out[i].Pods++
			addUse(&out[i].CPU, c.CPU)
			addUse(&out[i].Memory, c.Memory)
		}
	}
	for i := range out {
		out[i].CPU.Average /= int64(out[i].Pods)
		out[i].Memory.Average /= int64(out[i].Pods)
	}
	return out
}

// addUse adds one pod; Average is the sum until all are joined.
func addUse(f *runnerapi.UsageFigure, u runnerapi.UseOfPod) {
	f.Average += u.Used
	f.Highest = max(f.Highest, u.Used)
	f.Request, f.Limit = highest(f.Request, u.Request), highest(f.Limit, u.Limit)
}

func highest(a, b *int64) *int64 {
	if a == nil || b != nil && *b > *a {
		return b
	}
	return a
}

// tell returns what is known about an App's size.
func (s *Sizer) tell(a *v1alpha1.App) runnerapi.SizingMetrics {
	mode := a.Spec.Sizing()
	out := runnerapi.SizingMetrics{Mode: mode, Containers: []runnerapi.Recommendation{}}
	status := v1alpha1.SizingStatus{}
	if a.Status.Sizing != nil {
		status = *a.Status.Sizing
	}
	for _, h := range s.histories(a) {
		r := recommend(a, h.name, h.history)
		if applied := status.Applied; applied != nil && h.name == a.Name {
			r.CPU.Applied, r.Memory.Applied = &applied.CPU, &applied.Memory
		}
		out.Containers = append(out.Containers, r)
	}
	if status.Applied != nil {
		out.AppliedBy = status.Applied.By
		if at, err := time.Parse(time.RFC3339, status.Applied.At); err == nil {
			out.AppliedAt = &at
		}
	}
	if mode == runnerapi.SizingApply {
		out.Waiting = status.Waiting
	}
	return out
}
