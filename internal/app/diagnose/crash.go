package diagnose

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const (
	minSettle = 10 * time.Second // a restarted container runs at least this long before it counts as cured
	maxSettle = 10 * time.Minute // after which the kubelet forgets its back-off too
	maxLines  = 10
	maxLine   = 256
)

// command finds a container whose process could not even be started.
func command(c container, _ *Evidence) Finding {
	reason, message := c.waiting()
	if reason != "RunContainerError" && reason != "CreateContainerError" {
		end := c.lastEnd()
		if end == nil || end.Reason != "StartError" && end.Reason != "ContainerCannotRun" || c.runs() {
			return Finding{}
		}
		message = end.Message
	}
	what := startError(message)
	if what == "" {
		return found(c.diagnosis(runnerapi.CauseUnknown, "the container cannot be started: "+clip(message), c.events()))
	}
	d := c.diagnosis(runnerapi.CauseBadCommand, "the container cannot be started: "+what,
		"correct command and args, or leave command out to use the image's own entrypoint")
	if end := c.lastEnd(); end != nil {
		d.ExitCode = &end.ExitCode
	}
	return found(d)
}

// startError is the part of the runtime's message that a person needs.
func startError(message string) string {
	for _, says := range []string{
		"executable file not found", "no such file or directory", "permission denied", "exec format error",
		"is a directory", "no command specified",
	} {
		if i := strings.Index(message, says); i >= 0 {
			if at := strings.LastIndex(message[:i], "exec: "); at >= 0 {
				return clip(message[at:i] + says)
			}
			return clip(message)
		}
	}
	return ""
}

// memory finds a container that was killed for its memory.
func memory(c container, ev *Evidence) Finding {
	end := c.lastEnd()
	if end == nil || end.Reason != "OOMKilled" {
		return Finding{}
	}
	left := c.settlesIn(end, ev.Now)
	if c.runs() && left <= 0 {
		return Finding{}
	}
	message, fix := "the container was killed because the node ran out of memory",
		"set resources.requests.memory to what the App needs"
	if limit := c.spec.Resources.Limits.Memory(); !limit.IsZero() {
		message = fmt.Sprintf("the container was killed because it used more memory than its limit of %s", limit)
		fix = "raise resources.limits.memory, or make the App use less"
	}
	return Finding{Diagnosis: c.ended(runnerapi.CauseOutOfMemory, message, fix, end), Recheck: left}
}

// crash finds a container that keeps ending. One restart is no loop yet, but
// reason enough not to call the App healthy at once; and a container that is
// up again between two crashes is not cured.
func crash(c container, ev *Evidence) Finding {
	end := c.lastEnd()
	if end == nil || end.Reason == "OOMKilled" || end.Reason == "StartError" || end.Reason == "ContainerCannotRun" {
		return Finding{}
	}
	reason, _ := c.waiting()
	left := c.settlesIn(end, ev.Now)
	switch {
	case c.runs() && left <= 0:
		return Finding{}
	case reason == "CrashLoopBackOff", c.status.RestartCount >= 2, c.status.RestartCount == 1 && c.status.State.Terminated != nil:
		if port, yes := portTaken(end.Message); yes {
			return Finding{Diagnosis: c.clash(port, end), Recheck: left}
		}
		message, fix := crashText(c, end)
		return Finding{Diagnosis: c.ended(runnerapi.CauseCrashLoop, message, fix, end), Recheck: left}
	}
	return Finding{Unsettled: true, Recheck: left}
}

func crashText(c container, end *corev1.ContainerStateTerminated) (message, fix string) {
	switch {
	case end.ExitCode == 0:
		return "the container's process ends by itself (exit code 0), and is started again and again",
			"correct command and args so that a process keeps running in the foreground; what is meant to end is of type Job"
	case end.ExitCode == 127:
		return "the container's process ends with exit code 127: its shell does not find a command",
			"correct command and args, or the script they name"
	case end.Signal > 0:
		return fmt.Sprintf("the container's process keeps being ended by signal %d", end.Signal), logsFix(c)
	}
	return fmt.Sprintf("the container's process keeps ending with exit code %d", end.ExitCode), logsFix(c)
}

func logsFix(c container) string {
	if c.status.Name != "" && len(c.pod.Spec.Containers) > 1 {
		return "read why in the logs of container " + c.status.Name + " (logs --previous), and correct the App"
	}
	return "read why in its logs (logs --previous), and correct the App"
}

// runs says whether the container runs now.
func (c container) runs() bool { return c.status.State.Running != nil }

// settlesIn is how long a restarted container has still to run before its last
// end is history: twice as long as the run before, within bounds.
func (c container) settlesIn(end *corev1.ContainerStateTerminated, now time.Time) time.Duration {
	if !c.runs() {
		return 0
	}
	settle := minSettle
	if c.status.RestartCount >= 2 || end.Reason == "OOMKilled" {
		settle = min(max(2*end.FinishedAt.Sub(end.StartedAt.Time), minSettle), maxSettle)
	}
	return max(settle-now.Sub(c.status.State.Running.StartedAt.Time), 0)
}

// ended is a diagnosis about how a container ended. The kubelet puts the last
// lines of the log into the termination message (FallbackToLogsOnError).
func (c container) ended(cause runnerapi.Cause, message, fix string, end *corev1.ContainerStateTerminated) *runnerapi.Diagnosis {
	d := c.diagnosis(cause, message, fix)
	d.ExitCode = &end.ExitCode
	d.LastLines = lastLines(end.Message)
	return d
}

func lastLines(text string) []string {
	text = strings.TrimRight(text, "\n")
	if text == "" {
		return nil
	}
	lines := strings.Split(text, "\n")
	lines = lines[max(len(lines)-maxLines, 0):]
	for i, line := range lines {
		line = strings.ToValidUTF8(strings.TrimRight(line, "\r"), "?")
		if len(line) > maxLine {
			line = strings.ToValidUTF8(line[:maxLine], "") + "…"
		}
		lines[i] = line
	}
	return lines
}
