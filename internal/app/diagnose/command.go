package diagnose

import (
	"strings"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
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

// startErrors are the runtimes' texts about processes that cannot be started.
var startErrors = []struct{ says, fix string }{
	{"exec format error", wrongBuild},
	{"permission denied", "make the file executable in the image (chmod +x), or start it by its interpreter, as in command: [sh, FILE]"},
	{"executable file not found", commandFix},
	{"no such file or directory", commandFix + "; a script needs the interpreter in its first line, a program the libraries it is linked with"},
	{"is a directory", commandFix},
	{"no command specified", "set command: the image has no entrypoint of its own"},
}

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

const commandFix = "correct command and args, or leave command out to use the image's own entrypoint"

const wrongBuild = "build the image for the CPU architecture of the nodes (kubectl get nodes -L kubernetes.io/arch); " +
	"a script needs an interpreter in its first line (#!/bin/sh)"
