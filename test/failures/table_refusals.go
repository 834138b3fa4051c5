package failures

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// ofRefusals returns failures of pods that the cluster does not create.
func ofRefusals(i Images) []Failure {
	hello := runs(i.Hello)
	refused := Says(1, "FailedCreate")
	quota := func(name string, spec runnerapi.AppSpec, scene *Scene, see Signal, object string) Failure {
		return Failure{
			Name: name, Spec: spec, Scene: scene, Signal: see, Cause: runnerapi.CauseQuotaExceeded, Object: object,
			Message: "quota none", Fix: "kubectl edit resourcequota none",
		}
	}
	return []Failure{
		quota("over-quota", hello, noPods, RefusedPods, "replicaset/"),
		quota("set-over-quota", as(runnerapi.TypeStatefulSet, hello), noPods, refused, "statefulset/"),
		quota("daemon-over-quota", as(runnerapi.TypeDaemonSet, hello), noPods, refused, "daemonset/"),
		quota("job-over-quota", once(hello), noPods, refused, "job/"),
		quota("over-cpu-quota", hello, noCPU, RefusedPods, "replicaset/"),
		quota("over-memory-quota", hello, noMemory, RefusedPods, "replicaset/"),
		{
			Name: "too-loose", Scene: restricted, Signal: RefusedPods,
			Spec:  with(hello, func(s *runnerapi.AppSpec) { s.Security = &runnerapi.Security{AllowRoot: true} }),
			Cause: runnerapi.CauseAdmissionRefused, Object: "replicaset/", Message: "violates PodSecurity", Fix: "pod-security.kubernetes.io/enforce",
		},
		{
			Name: "over-limit-range", Spec: limited(hello, "64Mi"), Scene: smallPods, Signal: RefusedPods,
			Cause: runnerapi.CauseAdmissionRefused, Object: "replicaset/", Message: "maximum memory usage per Container is 32Mi", Fix: "describe limitrange",
		},
		{
			Name: "no-account", Signal: RefusedPods,
			Spec:  with(hello, func(s *runnerapi.AppSpec) { s.ServiceAccount = &runnerapi.ServiceAccount{Name: "nobody"} }),
			Cause: runnerapi.CauseAdmissionRefused, Object: "replicaset/", Message: `serviceaccount "nobody" not found`, Fix: "what the message names",
		},
		{
			Name: "no-priority", Signal: RefusedPods,
			Spec:  with(hello, func(s *runnerapi.AppSpec) { s.PriorityClass = "nowhere" }),
			Cause: runnerapi.CauseAdmissionRefused, Object: "replicaset/", Message: "no PriorityClass with name nowhere", Fix: "what the message names",
		},
		{
			Name: "no-runtime", Spec: hello, NoApp: "an App chooses no runtime", Signal: RefusedPods,
			Change: pod(func(p *corev1.PodSpec) { p.RuntimeClassName = new("nowhere") }),
			Cause:  runnerapi.CauseAdmissionRefused, Object: "replicaset/", Message: `RuntimeClass "nowhere" not found`, Fix: "what the message names",
		},
		{
			Name: "unsafe-sysctl", Spec: hello, NoApp: "an App sets no sysctls", Signal: Says(1, "SysctlForbidden"),
			Change: pod(func(p *corev1.PodSpec) {
				p.SecurityContext.Sysctls = []corev1.Sysctl{{Name: "net.core.somaxconn", Value: "1024"}}
			}),
			Cause: runnerapi.CauseAdmissionRefused, Object: "pod/", Message: "refuses the pods as soon as they are placed", Fix: "sysctl",
		},
	}
}

// ofAdmission returns failures by webhooks and policies that block the pods, or what creates them.
func ofAdmission(i Images) []Failure {
	hello := runs(i.Hello)
	refused := func(name string, scene *Scene, message, fix string) Failure {
		return Failure{
			Name: name, Spec: hello, Scene: scene, Signal: RefusedPods,
			Cause: runnerapi.CauseAdmissionRefused, Object: "replicaset/", Message: message, Fix: fix,
		}
	}
	whole := func(f Failure) Failure {
		f.Refused, f.Signal, f.Object = true, nil, "deployment"
		return f
	}
	const silent, denied = "webhook guard.example.com of the cluster does not answer", "not today"
	return []Failure{
		refused("webhook-of-pods", podsWebhook, silent, "bring webhook guard.example.com back"),
		refused("policy-of-pods", podsPolicy, denied, "what policy"),
		whole(refused("webhook", workloadsWebhook, "guard.example.com", "guard.example.com")),
		whole(refused("policy", workloadsPolicy, denied, "policy")),
	}
}

// ofNodes returns failures of the cluster's only node.
func ofNodes(i Images) []Failure {
	return []Failure{
		{
			Name: "tainted", Spec: runs(i.Hello), Scene: taintedNode, Signal: Unscheduled,
			Cause: runnerapi.CauseUnschedulable, Object: "pod/", Message: "dedicated=gpu:NoSchedule", Fix: "kubectl taint nodes NODE dedicated-",
		},
		{
			Name: "cordoned", Spec: runs(i.Hello), Scene: cordonedNode, Signal: Unscheduled,
			Cause: runnerapi.CauseUnschedulable, Object: "pod/", Message: "unschedulable", Fix: "kubectl uncordon",
		},
	}
}

// ofTime returns failures that only take too long.
func ofTime(i Images) []Failure {
	return []Failure{
		{
			Name: "init-hanging", Slow: true, Signal: Stalled,
			Spec: with(runs(i.Hello), func(s *runnerapi.AppSpec) {
				s.ProgressDeadline = new(int32(45))
				s.InitContainers = []runnerapi.InitContainer{{Name: "migrate", Args: []string{"-lines=1"}}}
			}),
			Cause: runnerapi.CauseDeadlinePassed, Object: "deployment/", Message: "container migrate", Fix: "raise progressDeadlineSeconds",
		},
		{
			Name: "no-figures", Slow: true, Lives: true, Later: true,
			Spec: with(runs(i.Hello), func(s *runnerapi.AppSpec) {
				s.Autoscaling = &runnerapi.Autoscaling{Min: 1, Max: 2, CPUPercent: 50}
				s.Resources.Requests.CPU = "0"
			}),
			Cause: runnerapi.CauseAutoscalingFailed, Object: "horizontalpodautoscaler/", Message: "the autoscaler does not change the number of pods",
			Fix: "resources.requests.cpu above 0",
		},
	}
}
