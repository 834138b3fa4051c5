package provider

import (
	"errors"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/problem/catalog"
)

// failed adds an error, in the form that it has on the command lines: what failed and why, the fix,
// the code. fields lead from a field of the call to the attribute that has it.
func failed(diags *diag.Diagnostics, summary string, err error, fields map[string]path.Path) {
	f := cli.FailureOf(err)
	lines := append([]string{f.What}, f.Details...)
	if f.Fix != "" {
		lines = append(lines, "fix: "+f.Fix)
	}
	code := f.Name
	if entry, known := catalog.Named(f.Name); known {
		code = entry.Code + " " + f.Name
	}
	if code != "" {
		lines = append(lines, strings.TrimSuffix("code: "+code+", request "+f.Request, ", request "))
	}
	detail := strings.Join(lines, "\n")
	if p, ok := problem.Of(err); ok {
		if at, ok := fields[p.Field]; ok {
			diags.AddAttributeError(at, summary, detail)
			return
		}
	}
	diags.AddError(summary, detail)
}

// isGone reports whether an object does not exist any more.
func isGone(err error) bool {
	return problem.Is(err, problem.NotFound) && !errors.As(err, new(noAgentError))
}
