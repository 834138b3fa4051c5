package failures

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func ofCrashes(i Images) []Failure {
	crash := func(code string) runnerapi.AppSpec { return runs(i.Hello, "-crash-after=50ms", "-exit-code="+code) }
	oom := Ended("OOMKilled")
	return []Failure{
		{
			Name: "crashing", Spec: crash("3"), Signal: Looping, Lives: true,
			Cause: runnerapi.CauseCrashLoop, Object: "pod/", Message: "exit code 3", Fix: "logs --previous",
		},
		{
			Name: "set-crashing", Spec: as(runnerapi.TypeStatefulSet, crash("3")), Signal: Looping, Lives: true,
			Cause: runnerapi.CauseCrashLoop, Object: "pod/set-crashing-0", Message: "exit code 3", Fix: "logs --previous",
		},
		{
			Name: "daemon-crashing", Spec: as(runnerapi.TypeDaemonSet, crash("3")), Signal: Looping, Lives: true,
			Cause: runnerapi.CauseCrashLoop, Object: "pod/", Message: "exit code 3", Fix: "logs --previous",
		},
		{
			Name: "later-crashing", Spec: runs(i.Hello, "-crash-after=2s"), Signal: Looping, Lives: true,
			Cause: runnerapi.CauseCrashLoop, Object: "pod/", Message: "keeps ending with exit code 1", Fix: "logs --previous",
		},
		{
			Name: "ending", Spec: crash("0"), Signal: Looping, Lives: true,
			Cause: runnerapi.CauseCrashLoop, Object: "pod/", Message: "ends by itself", Fix: "type Job",
		},
		{
			Name: "no-shell-command", Spec: crash("127"), Signal: Looping, Lives: true,
			Cause: runnerapi.CauseCrashLoop, Object: "pod/", Message: "exit code 127: its shell does not find a command", Fix: "correct command and args",
		},
		{
			Name: "no-shell-right", Spec: crash("126"), Signal: Looping, Lives: true,
			Cause: runnerapi.CauseCrashLoop, Object: "pod/", Message: "exit code 126: its shell may not execute a file", Fix: "chmod +x",
		},
		{
			Name: "clashing", Spec: runs(i.Hello, "-also-listen=:8080"), Signal: Looping, Lives: true,
			Cause: runnerapi.CausePortClash, Object: "pod/", Message: "port 8080 is taken", Fix: "correct args, env or ports",
		},
		{
			Name: "read-only", Signal: Looping, Lives: true,
			Spec: with(runs(i.Hello, "-write=/state"), func(s *runnerapi.AppSpec) {
				s.Security = &runnerapi.Security{ReadOnlyRootFilesystem: true}
			}),
			Cause: runnerapi.CauseCrashLoop, Object: "pod/", Message: "the file system, which is read-only", Fix: "mount a volume where it writes",
		},
		{
			Name: "not-its-file", Spec: runs(i.Hello, "-write=/etc/state"), Signal: Looping, Lives: true,
			Cause: runnerapi.CauseCrashLoop, Object: "pod/", Message: "it may not read or write a file", Fix: "chown",
		},
		{
			Name: "low-port", Spec: runs(i.Hello, "-listen=:80"), NoApp: "an App's pods have the node's sysctls, and these allow it", Lives: true,
			Change: pod(func(p *corev1.PodSpec) {
				p.SecurityContext.Sysctls = []corev1.Sysctl{{Name: "net.ipv4.ip_unprivileged_port_start", Value: "1024"}}
			}),
			Signal: Looping, Cause: runnerapi.CauseCrashLoop, Object: "pod/", Message: "those below 1024 are for root", Fix: "1024 or above",
		},
		{
			Name: "hungry", Spec: limited(runs(i.Hello, "-eat-memory"), "40Mi"), Signal: oom, Lives: true,
			Cause: runnerapi.CauseOutOfMemory, Object: "pod/", Message: "limit of 40Mi", Fix: "resources.limits.memory",
		},
		{
			Name: "hungry-job", Spec: once(limited(runs(i.Hello, "-eat-memory"), "40Mi")), Signal: FailedRun,
			Cause: runnerapi.CauseOutOfMemory, Object: "pod/", Message: "limit of 40Mi", Fix: "resources.limits.memory",
		},
	}
}

// ofContainers returns failures of a container beside the workload's own.
func ofContainers(i Images) []Failure {
	initial := func(c runnerapi.InitContainer) runnerapi.AppSpec {
		return with(runs(i.Hello), func(s *runnerapi.AppSpec) { s.InitContainers = []runnerapi.InitContainer{c} })
	}
	crash := []string{"-crash-after=50ms", "-exit-code=4", "-listen=:8081"}
	patched := func(list string, c map[string]any) runnerapi.AppSpec {
		pod := map[string]any{list: []any{c}}
		return with(runs(i.Hello), func(s *runnerapi.AppSpec) {
			s.Patches = []runnerapi.Patch{{Patch: map[string]any{"spec": map[string]any{"template": map[string]any{"spec": pod}}}}}
		})
	}
	args := []any{"-crash-after=50ms", "-exit-code=4", "-listen=:8081"}
	return []Failure{
		{
			Name: "init-crashing", Spec: initial(runnerapi.InitContainer{Name: "migrate", Args: crash}), Signal: Looping,
			Cause: runnerapi.CauseCrashLoop, Object: "pod/", Message: "init container migrate's process keeps ending with exit code 4", Fix: "logs",
		},
		{
			Name: "init-no-image", Spec: initial(runnerapi.InitContainer{Name: "migrate", Image: "apps.test/no-such-image:1"}), Signal: unpulled,
			Cause: runnerapi.CauseImageNotFound, Object: "pod/", Message: "apps.test/no-such-image:1 does not exist", Fix: "docker push",
		},
		{
			Name: "init-no-command", Spec: initial(runnerapi.InitContainer{Name: "migrate", Command: []string{"/bin/nowhere"}}),
			Signal: Either(Waits("RunContainerError"), Ended("StartError")),
			Cause:  runnerapi.CauseBadCommand, Object: "pod/", Message: "init container migrate cannot be started", Fix: "correct command and args",
		},
		{
			Name: "sidecar-crashing", Lives: true,
			Spec:   patched("initContainers", map[string]any{"name": "proxy", "image": i.Hello, "args": args, "restartPolicy": "Always"}),
			Signal: Looping, Cause: runnerapi.CauseCrashLoop, Object: "pod/", Message: "sidecar proxy's process keeps ending with exit code 4", Fix: "proxy",
		},
		{
			Name:   "sidecar-no-image",
			Spec:   patched("initContainers", map[string]any{"name": "proxy", "image": "apps.test/no-such-image:1", "restartPolicy": "Always"}),
			Signal: unpulled, Cause: runnerapi.CauseImageNotFound, Object: "pod/", Message: "apps.test/no-such-image:1 does not exist", Fix: "docker push",
		},
		{
			Name: "second-crashing", Lives: true, Spec: patched("containers", map[string]any{"name": "metrics", "image": i.Hello, "args": args}),
			Signal: Looping, Cause: runnerapi.CauseCrashLoop, Object: "pod/", Message: "container metrics's process keeps ending with exit code 4",
			Fix: "logs of container metrics",
		},
	}
}
