package build

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/build/step"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// failed is the end of a log of BuildKit v0.33.1.
const failed = `#6 ERROR: process "/bin/sh -c exit 7" did not complete successfully: exit code: 7
------
 > [broken 1/1] RUN ["/bin/sh", "-c", "echo about to fail; exit 7"]:
0.101 about to fail
------
Dockerfile:7
--------------------
   5 |
   7 | >>> RUN ["/bin/sh", "-c", "echo about to fail; exit 7"]
   8 |
--------------------
error: failed to solve: process "/bin/sh -c echo about to fail; exit 7" did not complete successfully: exit code: 7
`

func TestBuild_FindsFailedStep(t *testing.T) {
	f := &runnerapi.BuildFailure{Stage: buildStage}
	readLog(f, failed)
	assert.Equal(t, "step_failed", f.Cause)
	assert.Equal(t, `[broken 1/1] RUN ["/bin/sh", "-c", "echo about to fail; exit 7"]`, f.Step)
	assert.Equal(t, 7, f.Line)
	assert.Contains(t, f.Message, "exit code: 7")
}

func TestBuild_TerminationMessages(t *testing.T) {
	end := &batchv1.JobCondition{Type: batchv1.JobFailed, Reason: batchv1.JobReasonBackoffLimitExceeded}
	state := func(name string, s corev1.ContainerState) *corev1.Pod {
		return &corev1.Pod{Status: corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{{Name: name, State: s}}}}
	}
	ended := func(reason, message string) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: reason, Message: message}}
	}
	evicted := state(buildStage, ended("Error", ""))
	evicted.Status.Reason = "Evicted"
	late := state(buildStage, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "not found"}})
	late.Status.Reason = "DeadlineExceeded"
	for cause, pod := range map[string]*corev1.Pod{
		"out_of_memory":     state(buildStage, ended("OOMKilled", "")),
		"image_unfit":       state(fetchStage, ended("StartError", "no such file")),
		"ref_not_found":     state(fetchStage, ended("Error", `{"cause":"ref_not_found","message":"m","fix":"f"}`)),
		"fetch_failed":      state(fetchStage, ended("Error", "panic")),
		"step_failed":       state(buildStage, ended("Error", failed)),
		"evicted":           evicted,
		"deadline_exceeded": late,
		"pod_lost":          nil,
	} {
		f := failureOf(end, pod)
		assert.Equal(t, cause, f.Cause)
		assert.NotEmpty(t, f.Message, cause)
	}
	// A Dockerfile's step that prints what only the agent's steps may say is not believed.
	assert.Equal(t, "build_failed", failureOf(end, state(buildStage, ended("Error", `{"cause":"ref_not_found"}`))).Cause)
}

// FuzzReadLog: whatever a Dockerfile's steps print, a cause comes of it and nothing breaks.
func FuzzReadLog(f *testing.F) {
	f.Add(failed)
	f.Add("error: ")
	f.Add(" > [" + strings.Repeat("x", 500))
	f.Fuzz(func(t *testing.T, log string) {
		failure := &runnerapi.BuildFailure{Stage: buildStage, Cause: "build_failed"}
		readLog(failure, log)
		if failure.Cause == "" || failure.Line < 0 || len(failure.Message) > 4000 {
			t.Fatalf("%+v", failure)
		}
		if r, ok := step.Parse(log); ok && len(log) > 4096 {
			t.Fatalf("%+v", r)
		}
	})
}

func TestBuild_NoShell(t *testing.T) {
	args := buildctl(runnerapi.BuildSpec{BuildTemplate: runnerapi.BuildTemplate{Dockerfile: "docker/Prod file", Target: "a", Args: map[string]string{"B": "$(x),y=1", "A": "1"}}})
	assert.Equal(t, []string{
		"build", "--progress=plain", "--frontend=dockerfile.v0", "--local=context=/pipeops/context", "--local=dockerfile=/pipeops/context/docker",
		"--opt=filename=Prod file", "--opt=target=a", "--opt=build-arg:A=1", "--opt=build-arg:B=$(x),y=1", "--output=type=oci,tar=false,dest=/pipeops/image",
	}, args)
}
