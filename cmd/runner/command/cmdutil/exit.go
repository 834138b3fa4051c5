package cmdutil

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
)

// program has the command that explains a code.
const program = "pipeops-runner"

// Exit codes, for scripts.
const (
	ExitOK          = 0
	ExitFailure     = 1
	ExitUsage       = 2
	ExitAppFailed   = 3
	ExitNotFound    = 4
	ExitUnreachable = 5
	ExitTimeout     = 6
	ExitRefused     = 7
	ExitSuperseded  = 8
	ExitInterrupted = 130
)

var exitCodes = []struct {
	code int
	what string
}{
	{ExitOK, "success; if the command waited, the App is healthy, or the job or pipeline succeeded"},
	{ExitFailure, "any other error"},
	{ExitUsage, "an error on the command line or in a file"},
	{ExitAppFailed, "the App is failed or degraded, or the job or pipeline failed or cannot continue; the diagnosis is on standard error"},
	{ExitNotFound, "the agent, App, secret or namespace does not exist"},
	{ExitUnreachable, "the control plane or the agent is not reachable"},
	{ExitTimeout, "no outcome within the time to wait; the command may continue in the cluster"},
	{ExitRefused, "the credentials or the cluster owner's policy do not allow the command"},
	{ExitSuperseded, "a later change of the same App, or a later run of the same job or pipeline, replaced this one before its outcome"},
	{ExitInterrupted, "interrupted; commands that have started continue in the cluster"},
}

// ExitCodesHelp returns the exit codes as the help of the program lists them.
func ExitCodesHelp() string {
	var b strings.Builder
	for _, c := range exitCodes {
		fmt.Fprintf(&b, "  %-4d %s\n", c.code, c.what)
	}
	return strings.TrimRight(b.String(), "\n")
}

// ExitError is an error with its own exit code.
type ExitError struct {
	Err  error
	Code int
	Fix  string
	Told bool // everything was printed already
}

// Error implements error.
func (e *ExitError) Error() string { return e.Err.Error() }

func (e *ExitError) Unwrap() error { return e.Err }

// Exit prints a command's error and returns the exit code.
func (a *CLI) Exit(ctx context.Context, command string, err error) int {
	if err == nil {
		return ExitOK
	}
	code := exitCode(ctx, err)
	var own *ExitError
	if errors.As(err, &own) && own.Told {
		return code
	}
	f := cli.FailureOf(err)
	if f.Name == "" && code == ExitInterrupted {
		a.Say("interrupted; what was sent to the agent continues in the cluster")
		return code
	}
	switch {
	case own != nil && own.Fix != "":
		f.Fix = own.Fix
	case code == ExitUsage && f.Name == "" && f.Fix == "" && own == nil:
		f.Fix = cli.SeeHelp(command)
	}
	a.SayFailure(f)
	return code
}

func exitCode(ctx context.Context, err error) int {
	var own *ExitError
	known := &runnerapi.Error{}
	switch {
	case errors.As(err, &own):
		return own.Code
	case ctx.Err() != nil:
		return ExitInterrupted
	case errors.As(err, &known):
		return codeExit(known.Code)
	case cli.IsUsage(err):
		return ExitUsage
	}
	return ExitFailure
}

// IsRefused reports whether the credentials or the policy do not allow what was asked.
func IsRefused(err error) bool {
	known, ok := errors.AsType[*runnerapi.Error](err)
	return ok && codeExit(known.Code) == ExitRefused
}

func codeExit(code runnerapi.Code) int {
	switch code {
	case runnerapi.CodeInvalid, runnerapi.CodeBadRequest, runnerapi.CodeTooLarge:
		return ExitUsage
	case runnerapi.CodeNotFound:
		return ExitNotFound
	case client.CodeUnreachable, runnerapi.CodeUnavailable:
		return ExitUnreachable
	case runnerapi.CodeTimeout:
		return ExitTimeout
	case runnerapi.CodeForbidden, runnerapi.CodePolicyDenied, runnerapi.CodeApprovalRequired, runnerapi.CodeNamespaceNotManaged, runnerapi.CodeUnauthorized,
		client.CodeRefused, client.CodeUntrusted:
		return ExitRefused
	}
	return ExitFailure
}
