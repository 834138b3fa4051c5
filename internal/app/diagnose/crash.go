package diagnose

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const (
	minSettle = 10 * time.Second // a restarted container runs at least this long before it counts as cured
	maxSettle = 10 * time.Minute // after which the kubelet forgets its back-off too
)

// crash finds a container that keeps ending. One restart is not a loop yet, but reason enough not
// to call the App healthy at once. A container that is up between two crashes is not cured.
func crash(c container, ev *Evidence) Finding {
	end := c.lastEnd()
	if end == nil || end.Reason == "OOMKilled" || end.Reason == "StartError" || end.Reason == "ContainerCannotRun" {
		return Finding{}
	}
	left := c.settlesIn(end, ev)
	switch {
	case c.runs() && left <= 0:
		return Finding{}
	case c.loops(end):
		if port, yes := portTaken(end.Message); yes {
			return Finding{Diagnosis: c.clash(port, end), Recheck: left}
		}
		message, fix := crashText(c, end)
		return Finding{Diagnosis: c.ended(runnerapi.CauseCrashLoop, message+c.restarts(end), fix, end), Recheck: left}
	}
	return Finding{Unsettled: true, Recheck: left, Waiting: c.toStayUp(end, left)}
}

// loops reports whether an end of the container is one of several. One restart does not count, nor
// does one after a run so long that the kubelet starts counting again.
func (c container) loops(end *corev1.ContainerStateTerminated) bool {
	if reason, _ := c.waiting(); reason == "CrashLoopBackOff" {
		return true
	}
	if ran(end) >= maxSettle {
		return false
	}
	return c.status.RestartCount >= 2 || c.status.RestartCount == 1 && c.status.State.Terminated != nil
}

// restarts describes how often the container was restarted, and in what time.
func (c container) restarts(end *corev1.ContainerStateTerminated) string {
	if c.status.RestartCount < 2 || c.pod.Status.StartTime == nil || end.FinishedAt.IsZero() {
		return ""
	}
	minutes := max(int(end.FinishedAt.Sub(c.pod.Status.StartTime.Time).Minutes()+0.5), 1)
	if minutes == 1 {
		return fmt.Sprintf("; %d restarts in a minute", c.status.RestartCount)
	}
	return fmt.Sprintf("; %d restarts in %d minutes", c.status.RestartCount, minutes)
}

// toStayUp returns what is waited for after a container's end.
func (c container) toStayUp(end *corev1.ContainerStateTerminated, left time.Duration) string {
	if !c.runs() || left <= 0 {
		return fmt.Sprintf("container %s of pod %s to start again, after exit code %d", c.status.Name, c.pod.Name, end.ExitCode)
	}
	started := c.status.State.Running.StartedAt.UTC().Format(time.RFC3339)
	return fmt.Sprintf("container %s of pod %s to run without another restart: it was started again at %s, after exit code %d",
		c.status.Name, c.pod.Name, started, end.ExitCode)
}

// noteEnds adds what the ends of a pod's containers show about its ability to serve.
func (f *Finding) noteEnds(pod *corev1.Pod, ev *Evidence) {
	if ev.Spec.Type.Runs() {
		return
	}
	brief := false
	for _, c := range containersOf(pod) {
		end := c.lastEnd()
		if end == nil || c.runs() && c.settlesIn(end, ev) <= 0 {
			continue
		}
		f.Crashed = true
		if ran(end) >= minSettle {
			f.Flaps = true
		} else {
			brief = true
		}
	}
	if _, ready := readySince(pod); ready && brief {
		f.Brief++
	}
}

func ran(end *corev1.ContainerStateTerminated) time.Duration {
	return end.FinishedAt.Sub(end.StartedAt.Time)
}

func crashText(c container, end *corev1.ContainerStateTerminated) (message, fix string) {
	process := c.what() + "'s process"
	if why, fix := lastWords(end.Message); why != "" {
		return fmt.Sprintf("%s keeps ending with exit code %d: %s", process, end.ExitCode, why), fix
	}
	switch {
	case end.ExitCode == 0:
		return process + " ends by itself (exit code 0), and is started again and again",
			"correct command and args so that a process keeps running in the foreground; what is meant to end is of type Job"
	case end.ExitCode == 126:
		return process + " ends with exit code 126: its shell may not execute a file",
			"make the file executable in the image (chmod +x), or start it by its interpreter"
	case end.ExitCode == 127:
		return process + " ends with exit code 127: its shell does not find a command",
			"correct command and args, or the script they name"
	case end.Signal > 0:
		return fmt.Sprintf("%s keeps being ended by signal %d", process, end.Signal), logsFix(c)
	}
	return fmt.Sprintf("%s keeps ending with exit code %d", process, end.ExitCode), logsFix(c)
}

// runs reports whether the container runs now.
func (c container) runs() bool { return c.status.State.Running != nil }

// settlesIn returns how long a restarted container has still to run before its last end is history:
// as long as any new pod, and twice as long as the run before unless that was a long one.
func (c container) settlesIn(end *corev1.ContainerStateTerminated, ev *Evidence) time.Duration {
	if !c.runs() {
		return 0
	}
	started := c.status.State.Running.StartedAt.Time
	needs, _ := ev.Stabilization.of(c.pod, started)
	settle := max(minSettle, needs)
	if run := ran(end); run < maxSettle {
		settle = min(max(2*run, settle), maxSettle)
	}
	return max(settle-ev.Now.Sub(started), 0)
}

// ended returns a diagnosis about how a container ended. The kubelet puts the last lines of the log
// into the termination message (FallbackToLogsOnError).
func (c container) ended(cause runnerapi.Cause, message, fix string, end *corev1.ContainerStateTerminated) *runnerapi.Diagnosis {
	d := c.diagnosis(cause, message, fix)
	d.ExitCode = &end.ExitCode
	d.LastLines = lastLines(end.Message)
	return d
}
