package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

var formats = []string{"table", "json", "yaml"}

// output is the flag -o.
type output struct{ format string }

func (o *output) add(cmd *cobra.Command) {
	o.format = formats[0]
	cmd.Flags().VarP(o, "output", "o", "table, json or yaml")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)) // fails for an unknown flag only
}

// String, Set and Type make output a pflag.Value, so that a wrong format is
// refused before anything is done.
func (o *output) String() string { return o.format }

// Set takes the flag's value.
func (o *output) Set(s string) error {
	for _, f := range formats {
		if s == f {
			o.format = s
			return nil
		}
	}
	return fmt.Errorf("is none of %s", strings.Join(formats, ", "))
}

// Type is shown in the help.
func (o *output) Type() string { return "format" }

// write prints v, or what table prints.
func (o *output) write(w io.Writer, v any, table func(io.Writer)) error {
	switch o.format {
	case "json":
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		return encoder.Encode(v)
	case "yaml":
		text, err := yaml.Marshal(v)
		if err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	table(t)
	return t.Flush()
}

// row writes one line of a table. Its writer keeps the errors until Flush.
func row(w io.Writer, cells ...any) {
	text := make([]string, len(cells))
	for i, c := range cells {
		if text[i] = printable(fmt.Sprint(c)); text[i] == "" {
			text[i] = "-"
		}
	}
	_, _ = fmt.Fprintln(w, strings.Join(text, "\t"))
}

// printable keeps a cluster's text from moving the cursor.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
}

// ago is how kubectl shows times.
func ago(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return age(t) + " ago"
}

func age(t time.Time) string {
	switch d := max(time.Since(t), 0); {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}

func cores(millis int64) string { return fmt.Sprintf("%.2f", float64(millis)/1000) }

func mebibytes(bytes int64) string { return fmt.Sprintf("%d Mi", bytes>>20) }
