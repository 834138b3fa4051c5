package build

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/build/step"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// failureOf returns why a run has failed, by its pod, which may be nil.
func failureOf(end *batchv1.JobCondition, pod *corev1.Pod) *runnerapi.BuildFailure {
	f := &runnerapi.BuildFailure{Stage: "start"}
	if pod == nil {
		f.Cause, f.Message, f.Fix = "pod_lost", "the pod of the build is gone: "+end.Message, "build it again under another name of the run"
		if end.Reason == batchv1.JobReasonDeadlineExceeded {
			deadline(f)
		}
		return f
	}
	last := lastStage(pod)
	if last != nil && (last.State.Running != nil || last.State.Terminated != nil) {
		f.Stage = last.Name
	}
	switch {
	case pod.Status.Reason == "DeadlineExceeded" || end.Reason == batchv1.JobReasonDeadlineExceeded:
		deadline(f)
		if last != nil && last.State.Waiting != nil && last.State.Waiting.Message != "" {
			f.Message += "; it waited: " + last.State.Waiting.Message
		}
	case pod.Status.Reason == "Evicted":
		f.Cause, f.Message, f.Fix = "evicted", "the node took the pod away: "+pod.Status.Message, "build less, or on a node with more disk and memory"
	case last == nil || last.State.Terminated == nil:
		f.Cause, f.Message, f.Fix = "pod_lost", "the pod ended: "+pod.Status.Message, "build it again under another name of the run"
	default:
		terminated(f, last.Name, last.State.Terminated)
	}
	return f
}

func deadline(f *runnerapi.BuildFailure) {
	f.Cause, f.Message, f.Fix = "deadline_exceeded", "the build took longer than it may", "give it more time in deadlineSeconds, or more CPU in resources"
}

// lastStage returns the first container that failed, or the last that came to anything.
func lastStage(pod *corev1.Pod) *corev1.ContainerStatus {
	var last *corev1.ContainerStatus
	all := stages(pod)
	for i := range all {
		c := &all[i]
		if c.State.Terminated != nil && c.State.Terminated.ExitCode != 0 {
			return c
		}
		if last == nil || c.State.Running != nil || c.State.Terminated != nil {
			last = c
		}
	}
	return last
}

func terminated(f *runnerapi.BuildFailure, stage string, t *corev1.ContainerStateTerminated) {
	switch r, ok := step.Parse(t.Message); {
	case t.Reason == "OOMKilled":
		f.Cause, f.Message, f.Fix = "out_of_memory", stage+" needed more memory than it may have", "raise resources.limits.memory"
	case t.Reason == "StartError" || t.Reason == "ContainerCannotRun":
		f.Cause, f.Message = "image_unfit", "the image for "+stage+" cannot be started: "+t.Message
		f.Fix = "have the operator of the agent correct PIPEOPS_BUILD_IMAGE or PIPEOPS_BUILD_TOOLS_IMAGE"
	case ok && r.Cause != "" && stage != buildStage:
		f.Cause, f.Message, f.Fix = r.Cause, r.Message, r.Fix
	default:
		f.Cause, f.Message = stage+"_failed", fmt.Sprintf("%s ended with exit code %d", stage, t.ExitCode)
		readLog(f, t.Message)
	}
}

// The last lines of BuildKit's plain progress.
var (
	stepLine = regexp.MustCompile(`^ > (\[.{1,400}?):?$`)
	atLine   = regexp.MustCompile(`^[^\s:]{1,200}:(\d{1,6})$`)
	whyLine  = regexp.MustCompile(`(?i)^error: (?:failed to (?:solve|build): )?(.{1,1000})$`)
)

// reasons are what BuildKit's last words mean.
var reasons = []struct {
	words      []string
	cause, fix string
}{
	{[]string{"did not complete successfully"}, "step_failed", "see what the step printed"},
	{[]string{"failed to read dockerfile"}, "dockerfile_missing", "correct dockerfile: it is seen from git.path"},
	{[]string{"dockerfile parse error", "unknown instruction", "file with no instructions"}, "dockerfile_invalid", "correct the Dockerfile"},
	{[]string{"target stage"}, "target_missing", "correct target: it is the name of a stage of the Dockerfile"},
	{[]string{"failed to calculate checksum", "failed to compute cache key"}, "file_missing", "correct the path in the Dockerfile, or add the file: paths are seen from git.path"},
	{[]string{"x509:"}, "base_image_not_trusted", "name the certificates of the registry's CA in ca"},
	{[]string{"pull access denied", "failed to resolve source metadata", "failed to authorize"}, "base_image_unavailable", "correct the image in FROM, or name a secret in pullCredentials"},
	{[]string{"no space left on device"}, "disk_full", "build less, or on a node with more disk"},
	{[]string{"failed to setup uid/gid map", "fork/exec /proc/self/exe", "could not connect to unix"}, "builder_cannot_start",
		"see docs/deployer/builds.md, \"What a node needs\": user namespaces, and neither seccomp nor AppArmor in the way"},
}

// readLog finds the step and the line at fault in the end of BuildKit's log.
func readLog(f *runnerapi.BuildFailure, log string) {
	if f.Stage != buildStage {
		return
	}
	for line := range strings.Lines(log) {
		line = strings.TrimRight(line, "\r\n")
		if m := stepLine.FindStringSubmatch(line); m != nil {
			f.Step = m[1]
		} else if m := atLine.FindStringSubmatch(line); m != nil {
			f.Line, _ = strconv.Atoi(m[1]) // digits alone
		} else if m := whyLine.FindStringSubmatch(line); m != nil {
			f.Message = m[1]
		}
	}
	low := strings.ToLower(log)
	for _, r := range reasons {
		for _, w := range r.words {
			if strings.Contains(low, w) {
				f.Cause, f.Fix = r.cause, r.fix
				return
			}
		}
	}
}
