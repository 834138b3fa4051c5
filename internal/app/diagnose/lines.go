package diagnose

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// The kubelet puts the last 2 KiB of a log into the termination message, 80 lines at most.
const (
	messageBytes = 2048
	messageLines = 80
)

// End is a container whose last log is worth reading; Previous reports that it runs again.
type End struct {
	Container string
	Previous  bool
}

// WantsLastLines returns the containers of a pod that ended and whose termination message has no
// cause.
func WantsLastLines(pod *corev1.Pod) []End {
	if !pod.DeletionTimestamp.IsZero() {
		return nil
	}
	var ends []End
	for _, c := range containersOf(pod) {
		end := c.lastEnd()
		if end == nil || end.ExitCode == 0 || end.ContainerID == "" && c.status.ContainerID == "" {
			continue
		}
		switch end.Reason {
		case "OOMKilled", "StartError", "ContainerCannotRun", "ContainerStatusUnknown":
			continue
		}
		if end.Message == "" || cutOff(end.Message) && !saysWhy(end.Message) {
			ends = append(ends, End{c.status.Name, c.runs()})
		}
	}
	return ends
}

// cutOff reports whether the kubelet may have left something out.
func cutOff(message string) bool {
	return len(message) >= messageBytes*9/10 || strings.Count(message, "\n") >= messageLines-1
}

func saysWhy(text string) bool {
	if what, _ := lastWords(text); what != "" {
		return true
	}
	if _, taken := portTaken(text); taken {
		return true
	}
	return slices.ContainsFunc(strings.Split(text, "\n"), says.MatchString)
}

// WithLastLines returns a copy of the pod with the log's last lines as the termination message.
func WithLastLines(pod *corev1.Pod, of End, text string) *corev1.Pod {
	pod = pod.DeepCopy()
	for _, all := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range all {
			if all[i].Name != of.Container {
				continue
			}
			if t := all[i].State.Terminated; t != nil {
				t.Message = text
			} else if t := all[i].LastTerminationState.Terminated; t != nil {
				t.Message = text
			}
		}
	}
	return pod
}
