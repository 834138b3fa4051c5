package failures

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// noNode is the label of no node.
const noNode = "example.com/nowhere"

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
		unschedulable("gated", "an App has no scheduling gates", "it has scheduling gates example.com/later", "take them away", func(p *corev1.PodSpec) {
			p.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/later"}}
		}),
		unschedulable("no-scheduler", "an App names no scheduler", "no scheduler named nobody", "correct schedulerName", func(p *corev1.PodSpec) {
			p.SchedulerName = "nobody"
		}),
	}
	for n, f := range all {
		if f.Name == "gated" || f.Name == "no-scheduler" { // no signal comes
			all[n].Signal, all[n].Slow = nil, true
		}
	}
	devices := func(name, of string, n int32, message, fix string, scene *Scene) Failure {
		f := unschedulable(name, "", message, fix, nil)
		f.Scene, f.Spec.Resources.Devices = scene, map[string]int32{of: n}
		return f
	}
	used := devices("devices-in-use", device, 1, "1 of 1 are in use on node", "stop a pod that uses "+device, oneDevice)
	used.Spec.Replicas, used.Lives = new(int32(2)), true
	all = append(all, used,
		devices("no-device", "nvidia.com/gpu", 1, "no node of the cluster has nvidia.com/gpu", "NVIDIA's driver and container toolkit", nil),
		devices("devices-too-many", device, 9, "it asks for 9 of "+device+", and the largest node", "ask for less of "+device, oneDevice))
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
