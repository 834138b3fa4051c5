package diagnose

import (
	"cmp"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// PortTry is the result of the last try of a pod's declared TCP ports.
type PortTry struct {
	Refused  int32 // a port at which nothing listens; 0 for none
	Loopback int32 // a port that accepts connections inside the pod alone; 0 for none
	Idle     int32 // a port at which nothing listens while another port is open; 0 for none
	At       time.Time
}

// Unprobed returns the TCP ports that an App declares, without optional ones, and that no probe
// looks at: a pod's container is ready then as soon as its process runs.
func Unprobed(spec runnerapi.AppSpec) (ports []int32) {
	if p := spec.Probes; spec.Type.Runs() || p.Startup != nil || p.Readiness != nil || p.Liveness != nil {
		return nil
	}
	for _, port := range spec.Ports {
		if !port.Optional && (port.Protocol == "" || port.Protocol == string(corev1.ProtocolTCP)) {
			ports = append(ports, port.Port)
		}
	}
	return ports
}

// DeclaredPort is a TCP port that a container declares.
type DeclaredPort struct {
	Container string
	Number    int32
}

// DeclaredPorts returns those of a pod's containers that no probe looks at.
func DeclaredPorts(pod *corev1.Pod) (ports []DeclaredPort) {
	for _, c := range pod.Spec.Containers {
		if c.StartupProbe != nil || c.ReadinessProbe != nil || c.LivenessProbe != nil {
			continue
		}
		for _, port := range c.Ports {
			if port.Protocol == "" || port.Protocol == corev1.ProtocolTCP {
				ports = append(ports, DeclaredPort{c.Name, port.ContainerPort})
			}
		}
	}
	return ports
}

// ListensBy returns when a pod's program has to listen: after the stay of a pod without probes,
// counted from when it became ready.
func (s Stabilization) ListensBy(pod *corev1.Pod) (by time.Time, ready bool) {
	since, ready := readySince(pod)
	return since.Add(s.Unprobed), ready && alive(pod) && pod.Status.PodIP != ""
}

// listening finds a ready pod whose program does not listen at a port that its App declares.
// A refusal from before the end of the stay counts for nothing: programs take their time.
func listening(ev *Evidence) (all Finding) {
	for _, pod := range ev.Pods {
		try, tried := ev.Ports[pod.UID]
		by, ready := ev.Stabilization.ListensBy(pod)
		port := cmp.Or(try.Refused, try.Idle)
		if !tried || !ready || port == 0 {
			continue
		}
		if try.At.Before(by) {
			if !ev.Proven {
				all.Unsettled = true
				all.Waiting = fmt.Sprintf("pod %s to listen at TCP port %d", pod.Name, port)
			}
			continue // the try at the end of the period causes another look at the App
		}
		if try.Refused == 0 {
			continue // Unreachable warns of it
		}
		all.Diagnosis = &runnerapi.Diagnosis{
			Cause: runnerapi.CausePortNotListening, Object: "pod/" + pod.Name, Container: ev.Container,
			Message: fmt.Sprintf("nothing listens at TCP port %d, which the App declares: container %s of pod %s refuses connections",
				try.Refused, ev.Container, pod.Name),
			Fix: fmt.Sprintf("have the program listen on 0.0.0.0:%d, or declare in ports the port that it listens at; if it starts slowly, set probes.startup",
				try.Refused),
		}
		return all
	}
	return all
}

// Unreachable returns the condition of an App whose pods accept connections to a declared port
// inside the pod alone, or at another port alone; nil for none.
func Unreachable(ev *Evidence) *runnerapi.Condition {
	for _, pod := range ev.Pods {
		try := ev.Ports[pod.UID]
		if port := try.Loopback; port != 0 && Ready(pod) {
			return runnerapi.ConditionPortsReachable.False(runnerapi.ReasonOnlyOnLoopback,
				fmt.Sprintf("pod %s refuses connections to TCP port %d from outside, and accepts them inside the pod", pod.Name, port),
				fmt.Sprintf("have the program listen on 0.0.0.0:%d instead of 127.0.0.1, unless a NetworkPolicy refuses the agent", port))
		}
		if by, ready := ev.Stabilization.ListensBy(pod); ready && try.Idle != 0 && !try.At.Before(by) {
			return runnerapi.ConditionPortsReachable.False(runnerapi.ReasonNotListening,
				fmt.Sprintf("nothing listens at TCP port %d of pod %s, which the App declares; another port is open", try.Idle, pod.Name),
				fmt.Sprintf("have the program listen on 0.0.0.0:%d, or remove the port from ports; if it is meant so, set optional: true at the port", try.Idle))
		}
	}
	return nil
}
