package diagnose

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const noFreePorts = "didn't have free ports for the requested pod ports"

var (
	// taken matches how runtimes report EADDRINUSE: Go, Python, Java, Rust and nginx in libc's
	// words, Node.js also with the name, Spring and others in their own words.
	taken = regexp.MustCompile(`(?i)address already in use|address in use|EADDRINUSE|port \d+ (?:is|was) already (?:in use|allocated)`)
	// errno matches the number of that error, which is not a port.
	errno      = regexp.MustCompile(`(?i)(?:errno|os error) \d+|\(\d+: address`)
	portNumber = regexp.MustCompile(`(?i)(?::|port |, |=)(\d{1,5})\b`)
)

// portTaken reports whether a process ended because its port was taken, and returns the port if the
// last lines name it.
func portTaken(lines string) (port string, yes bool) {
	all := strings.Split(lines, "\n")
	slices.Reverse(all)
	for _, line := range all {
		if !taken.MatchString(line) {
			continue
		}
		if m := portNumber.FindAllStringSubmatch(errno.ReplaceAllString(line, ""), -1); m != nil {
			return "port " + m[len(m)-1][1], true
		}
		return "its port", true
	}
	return "", false
}

// clash returns the diagnosis of a container whose port is taken by another process of its pod:
// only they share the pod's network.
func (c container) clash(port string, end *corev1.ContainerStateTerminated) *runnerapi.Diagnosis {
	return c.ended(runnerapi.CausePortClash,
		fmt.Sprintf("the container's process keeps ending with exit code %d because %s is taken: another process of the pod listens on it", end.ExitCode, port),
		fmt.Sprintf("have each process of the pod listen on its own port: correct args, env or ports, or what was put beside the App's container (kubectl -n %s describe pod %s)",
			c.pod.Namespace, c.pod.Name), end)
}

// noHostPort returns the diagnosis of a pod that needs a port of the node, when no node has it
// free.
func noHostPort(pod *corev1.Pod, message string) *runnerapi.Diagnosis {
	ports := hostPorts(pod)
	return &runnerapi.Diagnosis{
		Cause: runnerapi.CausePortClash, Object: "pod/" + pod.Name,
		Message: fmt.Sprintf("no node has %s free, which the pod asks for: %s", ports, clip(message)),
		Fix:     hostPortFix(pod),
	}
}

func hostPortFix(pod *corev1.Pod) string {
	return fmt.Sprintf("free %s on a node, run fewer replicas (a node has each port once), add a node, or have what adds hostPort to the pods leave it out (kubectl -n %s get pod %s -o yaml)",
		hostPorts(pod), pod.Namespace, pod.Name)
}

func hostPorts(pod *corev1.Pod) string {
	var ports []string
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			if p.HostPort != 0 {
				ports = append(ports, fmt.Sprint(p.HostPort))
			}
		}
	}
	if len(ports) == 0 {
		return "the host port"
	}
	return "host port " + strings.Join(ports, ", ")
}
