package failures

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// noNode is the label of no node.
const noNode = "example.com/nowhere"

// asksFor returns a change that has the pods ask for an extended resource.
func asksFor(name corev1.ResourceName, amount string) func(*corev1.PodSpec) {
	return func(p *corev1.PodSpec) {
		of := corev1.ResourceList{name: resource.MustParse(amount)}
		p.Containers[0].Resources = corev1.ResourceRequirements{Requests: of, Limits: of}
	}
}

func ofScheduling(i Images) []Failure {
	asks := func(r runnerapi.ResourceAmounts) runnerapi.AppSpec {
		return light(runnerapi.AppSpec{Image: i.Hello, Resources: runnerapi.Resources{Requests: r}})
	}
	unschedulable := func(name, noApp, message, fix string, change func(*corev1.PodSpec)) Failure {
		f := Failure{
			Name: name, Spec: runs(i.Hello), NoApp: noApp, Signal: Unscheduled,
			Cause: runnerapi.CauseUnschedulable, Object: "pod/", Message: message, Fix: fix,
		}
		if change != nil {
			f.Change = pod(change)
		}
		return f
	}
	all := []Failure{
		unschedulable("affine", "an App has no affinity", "node affinity/selector", "add a node that fits", func(p *corev1.PodSpec) {
			p.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{
					MatchExpressions: []corev1.NodeSelectorRequirement{{Key: noNode, Operator: corev1.NodeSelectorOpExists}},
				}},
			}}}
		}),
		unschedulable("no-device", "an App asks for CPU and memory alone", "no node of the cluster has nvidia.com/gpu", "NVIDIA's driver and container toolkit", asksFor("nvidia.com/gpu", "1")),
		unschedulable("devices-too-many", "an App asks for CPU and memory alone", "it asks for 9 of "+device+", and the largest node", "ask for less of "+device, asksFor(device, "9")),
		unschedulable("devices-in-use", "an App asks for CPU and memory alone", "1 of 1 are in use on node", "stop a pod that uses "+device, asksFor(device, "1")),
		unschedulable("gated", "an App has no scheduling gates", "it has scheduling gates example.com/later", "take them away", func(p *corev1.PodSpec) {
			p.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/later"}}
		}),
		unschedulable("no-scheduler", "an App names no scheduler", "no scheduler named nobody", "correct schedulerName", func(p *corev1.PodSpec) {
			p.SchedulerName = "nobody"
		}),
	}
	for n, f := range all {
		if strings.HasPrefix(f.Name, "devices-") {
			all[n].Scene, all[n].Spec.Replicas, all[n].Lives = oneDevice, new(int32(2)), true
		}
		if f.Name == "gated" || f.Name == "no-scheduler" { // no signal comes
			all[n].Signal, all[n].Slow = nil, true
		}
	}
	large, larger := unschedulable("too-big", "", "the largest node", "resources.requests.cpu (now 900 per pod)", nil),
		unschedulable("too-much-memory", "", "Insufficient memory", "resources.requests.memory", nil)
	large.Spec, larger.Spec = asks(runnerapi.ResourceAmounts{CPU: "900"}), asks(runnerapi.ResourceAmounts{Memory: "9000Gi"})
	spread := unschedulable("no-zone", "", "topology spread constraints", "add a node", nil)
	spread.Spec = with(runs(i.Hello), func(s *runnerapi.AppSpec) {
		s.Spread = &runnerapi.Spread{When: "Required", Over: []string{noNode}}
	})
	selects := func(s *runnerapi.AppSpec) { s.NodeSelector = map[string]string{noNode: "yes"} }
	selected := unschedulable("selected", "", "node affinity/selector", "correct nodeSelector", nil)
	selected.Spec = with(runs(i.Hello), selects)
	return append(all, large, larger, spread, selected, Failure{
		Name: "host-port", Spec: with(runs(i.Hello), func(s *runnerapi.AppSpec) { s.Replicas = new(int32(2)) }),
		NoApp: "an App asks for no port of its node", Lives: true,
		Change: pod(func(p *corev1.PodSpec) {
			p.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 8080, HostPort: 19101}}
		}),
		Signal: Unscheduled, Cause: runnerapi.CausePortClash, Object: "pod/", Message: "no node has host port 19101 free", Fix: "hostPort",
	}, Failure{
		Name: "daemon-nowhere", Spec: as(runnerapi.TypeDaemonSet, with(runs(i.Hello), selects)),
		Cause: runnerapi.CauseUnschedulable, Object: "daemonset/", Message: "none fits their node selector", Fix: "correct nodeSelector",
	})
}
