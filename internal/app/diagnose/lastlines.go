package diagnose

import (
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/printable"
)

// The kubelet puts the last 2 KiB of a log into the termination message, 80 lines at most.
const (
	messageBytes = 2048
	messageLines = 80
)

// The status has this many lines of a log, each of this many bytes.
const (
	maxLines = 10
	maxLine  = 256
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

// telling are lines of a process' own that name a cause for which there is a fix.
var telling = []struct {
	line      *regexp.Regexp
	what, fix string
}{
	{regexp.MustCompile(`(?i)exec format error`), "the program is built for another CPU architecture", wrongBuild},
	{
		regexp.MustCompile(`(?i)read-only file ?system|EROFS`), "it writes to the file system, which is read-only",
		"mount a volume where it writes (volumes, or emptyDir), or set security.readOnlyRootFilesystem to false",
	},
	{
		regexp.MustCompile(`(?i)(?:bind|listen).*(?:permission denied|EACCES)|(?:permission denied|EACCES).*:\d{1,3}\b`),
		"it may not listen on its port: those below 1024 are for root", "have it listen on a port of 1024 or above, and give that in ports; the Service may keep 80",
	},
	{
		regexp.MustCompile(`(?i)permission denied|EACCES`), "it may not read or write a file",
		"give the file to the user that the image runs as (chown in its build), or mount a volume where it writes",
	},
}

// lastWords returns what the newest of the last lines that names a cause amounts to.
func lastWords(text string) (what, fix string) {
	lines := strings.Split(text, "\n")
	for _, line := range slices.Backward(lines) {
		for _, t := range telling {
			if t.line.MatchString(line) {
				return t.what, t.fix
			}
		}
	}
	return "", ""
}

func logsFix(c container) string {
	if c.status.Name != "" && len(c.pod.Spec.InitContainers)+len(c.pod.Spec.Containers) > 1 {
		return "read why in the logs of container " + c.status.Name + " (logs --previous), and correct the App"
	}
	return "read why in its logs (logs --previous), and correct the App"
}

// says matches lines with a cause, which a usage text, a long trace or closing lines may push away.
var says = regexp.MustCompile(`(?i)panic|fatal|exception|error|\b(caused by|cannot|could not|failed)\b`)

// gap stands for lines that are left out.
const gap = "…"

// lastLines returns the lines of a text that say why it ended: the last ones and, if they are
// earlier, the first and the last line with a cause.
func lastLines(text string) []string {
	text = strings.TrimRight(text, "\n")
	if text == "" {
		return nil
	}
	all := strings.Split(text, "\n")
	shown := make([]bool, len(all))
	for i, line := range all {
		if says.MatchString(line) {
			shown[i] = true
			break
		}
	}
	for i, line := range slices.Backward(all) {
		if says.MatchString(line) {
			shown[i] = true
			break
		}
	}
	lines := withGaps(all, shown)
	for i := len(all) - 1; i >= 0; i-- {
		shown[i] = true
		more := withGaps(all, shown)
		if len(more) > maxLines {
			break
		}
		lines = more
	}
	for i, line := range lines {
		lines[i] = printable.Shorten(strings.ToValidUTF8(strings.TrimRight(line, "\r"), "?"), maxLine)
	}
	return lines
}

// withGaps returns the lines that are shown, and a gap wherever others are between two of them.
func withGaps(all []string, shown []bool) (lines []string) {
	last := -1
	for i, line := range all {
		if !shown[i] {
			continue
		}
		if last >= 0 && i > last+1 {
			lines = append(lines, gap)
		}
		lines, last = append(lines, line), i
	}
	return lines
}
