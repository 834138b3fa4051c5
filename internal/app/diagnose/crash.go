package diagnose

import (
	"fmt"
	"regexp"
	"slices"
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
	switch {
	case reason == "PostStartHookError":
		return found(c.diagnosis(runnerapi.CauseBadCommand, c.what()+" is ended because its postStart hook fails: "+clip(message),
			"correct the command of the hook (lifecycle.postStart), or take the hook away"))
	case reason != "RunContainerError" && reason != "CreateContainerError":
		end := c.lastEnd()
		if end == nil || end.Reason != "StartError" && end.Reason != "ContainerCannotRun" || c.runs() {
			return Finding{}
		}
		message = end.Message
	}
	if isOOMKill(message) {
		return found(c.smothered())
	}
	what, fix := startError(message)
	if what == "" {
		return found(c.diagnosis(runnerapi.CauseUnknown, c.what()+" cannot be started: "+clip(message), c.events()))
	}
	d := c.diagnosis(runnerapi.CauseBadCommand, c.what()+" cannot be started: "+what, fix)
	if end := c.lastEnd(); end != nil {
		d.ExitCode = &end.ExitCode
	}
	return found(d)
}

// smothered returns the diagnosis of a container whose limit is too low to start anything in it.
func (c container) smothered() *runnerapi.Diagnosis {
	return c.diagnosis(runnerapi.CauseOutOfMemory,
		fmt.Sprintf("%s was killed for its memory before its process began: its limit is %s", c.what(), c.spec.Resources.Limits.Memory()),
		"raise resources.limits.memory: the runtime itself needs some 10Mi to start a process")
}

const commandFix = "correct command and args, or leave command out to use the image's own entrypoint"

// startErrors are the runtimes' texts about processes that cannot be started.
var startErrors = []struct{ says, fix string }{
	{"exec format error", wrongBuild},
	{"permission denied", "make the file executable in the image (chmod +x), or start it by its interpreter, as in command: [sh, FILE]"},
	{"executable file not found", commandFix},
	{"no such file or directory", commandFix + "; a script needs the interpreter in its first line, a program the libraries it is linked with"},
	{"is a directory", commandFix},
	{"no command specified", "set command: the image has no entrypoint of its own"},
}

const wrongBuild = "build the image for the CPU architecture of the nodes (kubectl get nodes -L kubernetes.io/arch); " +
	"a script needs an interpreter in its first line (#!/bin/sh)"

// startError returns the part of the runtime's message that a person needs.
func startError(message string) (what, fix string) {
	for _, e := range startErrors {
		if i := strings.Index(message, e.says); i >= 0 {
			if at := strings.LastIndex(message[:i], "exec: "); at >= 0 {
				return clip(message[at:i] + e.says), e.fix
			}
			return clip(message), e.fix
		}
	}
	return "", ""
}

// memory finds a container that was killed for its memory.
func memory(c container, ev *Evidence) Finding {
	end := c.lastEnd()
	if end == nil || end.Reason != "OOMKilled" {
		return Finding{}
	}
	left := c.settlesIn(end, ev)
	if c.runs() && left <= 0 {
		return Finding{}
	}
	message, fix := c.what()+" was killed because the node ran out of memory",
		"set resources.requests.memory to what the App needs"
	if limit := c.spec.Resources.Limits.Memory(); !limit.IsZero() {
		message = fmt.Sprintf("%s was killed because it used more memory than its limit of %s", c.what(), limit)
		fix = "raise resources.limits.memory, or make the App use less"
	}
	return Finding{Diagnosis: c.ended(runnerapi.CauseOutOfMemory, message, fix, end), Recheck: left}
}

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

// says matches lines with a cause, which a long trace or closing lines may push away.
var says = regexp.MustCompile(`(?i)\b(panic|fatal|exception|error|caused by|cannot|could not|failed)\b`)

// lastLines returns the last lines of a text. If these lack the cause, the last line before them
// with a cause takes the place of the first.
func lastLines(text string) []string {
	text = strings.TrimRight(text, "\n")
	if text == "" {
		return nil
	}
	all := strings.Split(text, "\n")
	lines := slices.Clone(all[max(len(all)-maxLines, 0):])
	if len(all) > maxLines && !slices.ContainsFunc(lines, says.MatchString) {
		for _, line := range slices.Backward(all[:len(all)-maxLines]) {
			if says.MatchString(line) {
				lines[0] = line
				break
			}
		}
	}
	for i, line := range lines {
		line = strings.ToValidUTF8(strings.TrimRight(line, "\r"), "?")
		if len(line) > maxLine {
			line = strings.ToValidUTF8(line[:maxLine], "") + "…"
		}
		lines[i] = line
	}
	return lines
}
