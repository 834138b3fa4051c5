package cli

import (
	"errors"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/problem/catalog"
)

// Failure is an error in the one form of all programs: what failed and why, the fix, the code.
type Failure struct {
	What      string
	Details   []string // more lines, for what does not fit into one
	Fix       string
	Name      string // of the error on the wire, from which its code follows
	Request   string // ID of the call
	LastLines []string
}

// FailureOf returns the parts of an error.
func FailureOf(err error) Failure {
	if known, ok := errors.AsType[*problem.Error](err); ok {
		return ofProblem(err, known)
	}
	f := Failure{What: err.Error()}
	var named interface{ ErrorName() string }
	if errors.As(err, &named) {
		f.Name = named.ErrorName()
	}
	f.What, f.Fix = cutFix(f.What)
	return f
}

func ofProblem(err error, e *problem.Error) Failure {
	what := strings.TrimSuffix(e.Error(), " (fix: "+e.Fix+")")
	f := Failure{Fix: Printable(e.Fix), Name: string(e.Code), Request: e.RequestID}
	switch {
	case len(e.Fields) > 0:
		what = e.Detail
		for _, field := range e.Fields {
			f.Details = append(f.Details, "field: "+Printable(field.String()))
		}
	case e.Field == "body" || e.Field == "path" || e.Field == "query": // the whole of it is no place
		what = e.Detail
	case e.Location != "" && e.Field != "":
		f.Details = []string{"field: " + Printable(e.Field)}
	}
	f.What = Printable(strings.Replace(err.Error(), e.Error(), asTyped(what, e.Field), 1))
	return f
}

// asTyped leaves out where in the HTTP request a value was: on a command line it was an argument or
// a flag.
func asTyped(what, field string) string {
	for _, place := range []string{"path.", "query."} {
		if name, ok := strings.CutPrefix(field, place); ok {
			return strings.Replace(what, field+": ", name+": ", 1)
		}
	}
	return what
}

// cutFix splits the fix from the text of an error, which ends with it in parentheses. Texts of
// several lines have several fixes, and stay as they are.
func cutFix(text string) (what, fix string) {
	what, fix, found := strings.Cut(text, " (fix: ")
	inner, closed := strings.CutSuffix(fix, ")")
	if !found || !closed || strings.Contains(text, "\n") || strings.Contains(fix, " (fix: ") {
		return text, ""
	}
	return what, inner
}

// Print prints the failure. The program is the one whose command explains the code.
func (f Failure) Print(w io.Writer, program string) {
	Say(w, "error: %s", f.What)
	for _, detail := range f.Details {
		Say(w, "  %s", detail)
	}
	if f.Fix != "" {
		Say(w, "  fix: %s", f.Fix)
	}
	if line := f.codeLine(program); line != "" {
		Say(w, "  %s", Printable(line))
	}
	if len(f.LastLines) > 0 {
		Say(w, "  last lines:")
	}
	for _, line := range f.LastLines {
		Say(w, "    %s", Printable(line))
	}
	f.annotate(w)
}

// codeLine returns the code with what it is good for. An error that is newer than this program has
// its name alone.
func (f Failure) codeLine(program string) string {
	line := ""
	entry, known := catalog.Named(f.Name)
	switch {
	case known:
		line = "code: " + entry.Code + " " + f.Name
	case f.Name != "":
		line = "code: " + f.Name
	}
	switch {
	case f.Request != "" && line != "":
		line += ", request " + f.Request
	case f.Request != "":
		line = "request: " + f.Request
	}
	if known {
		line += " (" + program + " explain " + entry.Code + ")"
	}
	return line
}

// PrintError prints the error of a command that was carried out. Mistakes on the command line name
// its help.
func PrintError(w io.Writer, cmd *cobra.Command, err error) {
	f := FailureOf(err)
	if IsUsage(err) && f.Fix == "" {
		f.Fix = SeeHelp(cmd.CommandPath())
	}
	f.Print(w, cmd.Root().CommandPath())
}
