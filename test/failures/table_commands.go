package failures

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func ofCommands(i Images) []Failure {
	command := func(of string) runnerapi.AppSpec {
		return with(runs(i.Odd), func(s *runnerapi.AppSpec) { s.Command = []string{of} })
	}
	unstarted := Either(Waits("RunContainerError", "CreateContainerError"), Either(Ended("StartError"), Ended("ContainerCannotRun")))
	return []Failure{
		{
			Name: "no-command", Spec: command("/bin/nowhere"), Signal: unstarted,
			Cause: runnerapi.CauseBadCommand, Object: "pod/", Message: "/bin/nowhere", Fix: "correct command and args",
		},
		{
			Name: "not-executable", Spec: command("/plain"), Signal: unstarted,
			Cause: runnerapi.CauseBadCommand, Object: "pod/", Message: "permission denied", Fix: "chmod +x",
		},
		{
			Name: "no-program", Spec: command("/garbage"), Signal: Either(unstarted, Looping),
			Cause: runnerapi.CauseCrashLoop, Object: "pod/", Message: "the program is built for another CPU architecture", Fix: "CPU architecture of the nodes", Lives: true,
		},
		{
			Name: "job-no-command", Spec: once(command("/bin/nowhere")), Signal: Either(unstarted, FailedRun),
			Cause: runnerapi.CauseBadCommand, Object: "pod/", Message: "/bin/nowhere", Fix: "correct command and args",
		},
		{
			Name: "hook-fails", Spec: runs(i.Hello), NoApp: "an App has no hooks",
			Change: pod(func(p *corev1.PodSpec) {
				p.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{
					Exec: &corev1.ExecAction{Command: []string{"/bin/nowhere"}},
				}}
			}),
			Signal: Either(Waits("PostStartHookError"), Says(1, "FailedPostStartHook")),
			Cause:  runnerapi.CauseBadCommand, Object: "pod/", Message: "postStart hook fails", Fix: "lifecycle.postStart", Lives: true,
		},
		{
			Name: "no-memory-to-start", Spec: limited(runs(i.Hello), "1Mi"), Signal: Either(unstarted, Says(1, "FailedCreatePodSandBox")),
			Cause: runnerapi.CauseOutOfMemory, Object: "pod/", Message: "1Mi", Fix: "resources.limits.memory", Lives: true,
		},
	}
}
