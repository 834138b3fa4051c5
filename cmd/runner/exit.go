package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
)

// Exit codes, for scripts.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitAppFailed   = 3
	exitNotFound    = 4
	exitUnreachable = 5
	exitTimeout     = 6
	exitRefused     = 7
	exitSuperseded  = 8
	exitInterrupted = 130
)

var exitCodes = []struct {
	code int
	what string
}{
	{exitOK, "success; if the command waited, the App is healthy, or the job or pipeline succeeded"},
	{exitFailure, "any other error"},
	{exitUsage, "an error on the command line or in a file"},
	{exitAppFailed, "the App is failed or degraded, or the job or pipeline failed or cannot continue; the diagnosis is on standard error"},
	{exitNotFound, "the agent, App, secret or namespace does not exist"},
	{exitUnreachable, "the control plane or the agent is not reachable"},
	{exitTimeout, "no outcome within the time to wait; the command continues in the cluster"},
	{exitRefused, "the credentials or the cluster owner's policy do not allow the command"},
	{exitSuperseded, "a later change of the same App, or a later run of the same job or pipeline, replaced this one before its outcome"},
	{exitInterrupted, "interrupted; commands that have started continue in the cluster"},
}

func exitCodesHelp() string {
	var b strings.Builder
	for _, c := range exitCodes {
		fmt.Fprintf(&b, "  %-4d %s\n", c.code, c.what)
	}
	return strings.TrimRight(b.String(), "\n")
}

// usageError is a mistake on the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// exitError is an error with an exit code of its own.
type exitError struct {
	error
	code int
	fix  string
	told bool // everything was printed already
}

func (e *exitError) Unwrap() error { return e.error }

// exit prints a command's error and returns the exit code.
func (a *app) exit(ctx context.Context, command string, err error) int {
	if err == nil {
		return exitOK
	}
	code := exitCode(ctx, err)
	var own *exitError
	if errors.As(err, &own) && own.told {
		return code
	}
	known := &runnerapi.Error{}
	switch {
	case errors.As(err, &known):
		a.sayKnown(err, known)
	case code == exitInterrupted:
		a.say("interrupted; what was sent to the agent goes on in the cluster")
	default:
		a.say("Error: %v", err)
	}
	if own != nil && own.fix != "" {
		a.say("  fix: %s", own.fix)
	}
	if code == exitUsage && known.Code == "" && own == nil {
		a.say("%s", cli.SeeHelp(command))
	}
	return code
}

// sayKnown prints an agent's error in its parts: what, where, fix, request.
func (a *app) sayKnown(err error, e *runnerapi.Error) {
	a.say("Error: %s", cli.Printable(strings.Replace(err.Error(), e.Error(), e.Detail, 1)))
	if len(e.Fields) == 0 && e.Field != "" {
		a.say("  field: %s", cli.Printable(e.Field))
	}
	for _, f := range e.Fields {
		a.say("  field: %s", cli.Printable(f.String()))
	}
	if e.Fix != "" {
		a.say("  fix: %s", cli.Printable(e.Fix))
	}
	if e.RequestID != "" {
		a.say("  request: %s", cli.Printable(e.RequestID))
	}
}

func exitCode(ctx context.Context, err error) int {
	var own *exitError
	var usage usageError
	known := &runnerapi.Error{}
	switch {
	case errors.As(err, &own):
		return own.code
	case ctx.Err() != nil:
		return exitInterrupted
	case errors.As(err, &known):
		return codeExit(known.Code)
	case errors.As(err, &usage):
		return exitUsage
	}
	return exitFailure
}

func codeExit(code runnerapi.Code) int {
	switch code {
	case runnerapi.CodeInvalid, runnerapi.CodeBadRequest, runnerapi.CodeTooLarge:
		return exitUsage
	case runnerapi.CodeNotFound:
		return exitNotFound
	case client.CodeUnreachable, runnerapi.CodeUnavailable:
		return exitUnreachable
	case runnerapi.CodeTimeout:
		return exitTimeout
	case runnerapi.CodeForbidden, runnerapi.CodePolicyDenied, runnerapi.CodeApprovalRequired, runnerapi.CodeNamespaceNotManaged, runnerapi.CodeUnauthorized,
		client.CodeRefused, client.CodeUntrusted:
		return exitRefused
	}
	return exitFailure
}
