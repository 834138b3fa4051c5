// Package cli is the common part of the three command lines, so that they behave alike: the flag
// -o, tables, ages, the version. The commands themselves are in cmd.
package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Formats are the values of -o but for jsonpath=TEMPLATE, the default first.
var Formats = []string{"table", "wide", markdown, "name", "json", "yaml"}

// markdown is the format of tables for the summary of a CI job.
const markdown = "markdown"

// JSONPath precedes a template in the flag -o.
const JSONPath = "jsonpath="

// Output is the flag -o: how a command prints its result. Commands that list have more flags.
type Output struct {
	Format string
	// Namespaced has a list show the namespace of each item.
	Namespaced bool

	list listFlags
}

// Add puts -o on a command.
func (o *Output) Add(cmd *cobra.Command) {
	o.Format = Formats[0]
	cmd.Flags().VarP(o, "output", "o", strings.Join(Formats, ", ")+" or "+JSONPath+"TEMPLATE")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(append(slices.Clone(Formats), JSONPath), cobra.ShellCompDirectiveNoFileComp)) // fails for an unknown flag only
}

// String, Set and Type make Output a pflag.Value, so that a wrong format is refused before anything
// is done.
func (o *Output) String() string { return o.Format }

// Set sets the flag's value.
func (o *Output) Set(s string) error {
	if template, ok := strings.CutPrefix(s, JSONPath); ok {
		if _, err := parsePath(template); err != nil {
			return err
		}
	} else if !slices.Contains(Formats, s) {
		return fmt.Errorf("is none of %s, %sTEMPLATE", strings.Join(Formats, ", "), JSONPath)
	}
	o.Format = s
	return nil
}

// Type returns the text for the help.
func (o *Output) Type() string { return "format" }

// Table reports whether the output is for a person.
func (o *Output) Table() bool {
	return o.Format == "table" || o.Format == "wide" || o.Format == markdown
}

// Write prints v, or the columns that table prints.
func (o *Output) Write(w io.Writer, v any, table func(io.Writer)) error {
	if o.list.unused() && !o.Namespaced {
		return o.write(w, v, nil, table)
	}
	v, order, err := o.list.arrange(v)
	if err != nil {
		return err
	}
	return o.write(w, v, order, table)
}

func (o *Output) write(w io.Writer, v any, order *arranged, table func(io.Writer)) error {
	template, isPath := strings.CutPrefix(o.Format, JSONPath)
	switch {
	case isPath:
		return writePath(w, v, template)
	case o.Format == "name":
		return writeNames(w, v)
	case o.Format == "json":
		text, err := encoded(v, "  ")
		if err != nil {
			return err
		}
		return Raw(w, text)
	case o.Format == "yaml":
		text, err := asYAML(v)
		if err != nil {
			return err
		}
		return Raw(w, text)
	}
	return o.writeTable(w, order, table)
}

// WriteLine prints one of many values of a command that continues: the text, or the value in a form
// that can be split again.
func (o *Output) WriteLine(w io.Writer, v any, text string) error {
	switch o.Format {
	case "json": // one object in a line, for jq and the like
		return JSONLine(w, v)
	case "yaml":
		Say(w, "---") // the encoder reports the same error
	}
	if o.Table() {
		return Print(w, Printable(text))
	}
	if err := o.write(w, v, nil, nil); err != nil || !strings.HasPrefix(o.Format, JSONPath) {
		return err
	}
	return Raw(w, []byte("\n"))
}

var errNoName = errors.New("-o name: the output has no names; use -o json")
