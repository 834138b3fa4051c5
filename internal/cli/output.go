// Package cli is the common part of the three command lines, so that they behave alike: the flag
// -o, tables, ages, the version. The commands themselves are in cmd.
package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

// Formats are the values of -o, the default first.
var Formats = []string{"table", "json", "yaml"}

// Output is the flag -o: how a command prints its result.
type Output struct{ Format string }

// Add puts -o on a command.
func (o *Output) Add(cmd *cobra.Command) {
	o.Format = Formats[0]
	cmd.Flags().VarP(o, "output", "o", "table, json or yaml")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(Formats, cobra.ShellCompDirectiveNoFileComp)) // fails for an unknown flag only
}

// String, Set and Type make Output a pflag.Value, so that a wrong format is refused before anything
// is done.
func (o *Output) String() string { return o.Format }

// Set sets the flag's value.
func (o *Output) Set(s string) error {
	if !slices.Contains(Formats, s) {
		return fmt.Errorf("is none of %s", strings.Join(Formats, ", "))
	}
	o.Format = s
	return nil
}

// Type returns the text for the help.
func (o *Output) Type() string { return "format" }

// Table reports whether the output is for a person.
func (o *Output) Table() bool { return o.Format == Formats[0] }

// Write prints v, or the columns that table prints.
func (o *Output) Write(w io.Writer, v any, table func(io.Writer)) error {
	switch o.Format {
	case "json":
		text, err := encoded(v, "  ")
		if err != nil {
			return err
		}
		return Raw(w, text)
	case "yaml":
		text, err := asYAML(v)
		if err != nil {
			return err
		}
		return Raw(w, text)
	}
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	table(t)
	return t.Flush()
}

// Row writes one line of a table. Its writer keeps the errors until Flush.
func Row(w io.Writer, cells ...any) {
	text := make([]string, len(cells))
	for i, c := range cells {
		if text[i] = Printable(fmt.Sprint(c)); text[i] == "" {
			text[i] = "-"
		}
	}
	fmt.Fprintln(w, strings.Join(text, "\t"))
}
