package failures

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func ofProbes(i Images) []Failure {
	probed := func(p runnerapi.Probes, args ...string) runnerapi.AppSpec {
		return with(runs(i.Hello, args...), func(s *runnerapi.AppSpec) { s.Probes = p })
	}
	readiness := func(p runnerapi.Probe) runnerapi.AppSpec {
		p.PeriodSeconds, p.FailureThreshold = 1, 2
		return probed(runnerapi.Probes{Readiness: &p})
	}
	unready := Says(2, "Unhealthy")
	killed := Either(Ended("Completed"), Ended("Error"))
	return []Failure{
		{
			Name: "unready", Spec: probed(Ready(8080), "-never-ready"), Signal: unready,
			Cause: runnerapi.CauseProbeFailing, Object: "pod/", Message: "statuscode: 503", Fix: "answer the probe",
		},
		{
			Name: "set-unready", Spec: as(runnerapi.TypeStatefulSet, probed(Ready(8080), "-never-ready")), Signal: unready,
			Cause: runnerapi.CauseProbeFailing, Object: "pod/set-unready-0", Message: "statuscode: 503", Fix: "answer the probe",
		},
		{
			Name: "wrong-path", Spec: readiness(runnerapi.Probe{HTTP: &runnerapi.HTTPProbe{Path: "/nowhere", Port: 8080}}), Signal: unready,
			Cause: runnerapi.CauseProbeFailing, Object: "pod/", Message: "GET /nowhere on port 8080) fails: HTTP probe failed with statuscode: 404", Fix: "answer the probe",
		},
		{
			Name: "wrong-port", Spec: readiness(runnerapi.Probe{TCP: &runnerapi.TCPProbe{Port: 9}}), Signal: unready,
			Cause: runnerapi.CauseProbeFailing, Object: "pod/", Message: "TCP port 9) fails", Fix: "answer the probe",
		},
		{
			Name: "no-probe-command", Spec: readiness(runnerapi.Probe{Exec: []string{"/bin/nowhere"}}), Signal: unready,
			Cause: runnerapi.CauseProbeFailing, Object: "pod/", Message: "command /bin/nowhere) fails", Fix: "answer the probe",
		},
		{
			Name: "unstarted", Spec: probed(runnerapi.Probes{Startup: tcp(9, 1, 2)}), Signal: killed,
			Cause: runnerapi.CauseProbeFailing, Object: "pod/", Message: "the startup probe (TCP port 9) fails: dial tcp", Fix: "failureThreshold",
		},
		{
			Name: "dying", Spec: probed(runnerapi.Probes{Liveness: tcp(9, 1, 1)}), Signal: killed, Lives: true,
			Cause: runnerapi.CauseProbeFailing, Object: "pod/", Message: "the liveness probe (TCP port 9) fails: dial tcp", Fix: "answer the probe",
		},
		{
			Name: "silent", Lives: true,
			Spec:  with(runs(i.Hello), func(s *runnerapi.AppSpec) { s.Ports = []runnerapi.Port{{Port: 9999}} }),
			Cause: runnerapi.CausePortNotListening, Object: "pod/", Message: "nothing listens at TCP port 9999", Fix: "0.0.0.0:9999",
		},
		{
			Name: "second-silent", Spec: runs(i.Hello), NoApp: "an App has one container", Lives: true,
			Change: pod(func(p *corev1.PodSpec) {
				p.Containers = append(p.Containers, corev1.Container{
					Name: "metrics", Image: i.Hello, Args: []string{"-listen=:8081"}, Ports: []corev1.ContainerPort{{ContainerPort: 9998}},
				})
			}),
			Cause: runnerapi.CausePortNotListening, Object: "pod/", Message: "container metrics of pod second-silent-", Fix: "0.0.0.0:9998",
		},
		{
			Name: "never-done", Signal: Stalled, // and no signal has the reason
			Spec: with(probed(runnerapi.Probes{Readiness: &runnerapi.Probe{TCP: &runnerapi.TCPProbe{Port: 8080}, InitialDelaySeconds: 3600}}),
				func(s *runnerapi.AppSpec) { s.ProgressDeadline = new(int32(10)) }),
			Cause: runnerapi.CauseDeadlinePassed, Object: "deployment/", Message: "no progress for 10 s", Fix: "raise progressDeadlineSeconds",
		},
	}
}
