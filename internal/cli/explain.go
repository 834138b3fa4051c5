package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/problem/catalog"
)

// NewExplain returns the command that prints what an error's code means.
func NewExplain(program string) *cobra.Command {
	var out Output
	cmd := &cobra.Command{
		Use: "explain [CODE]", Short: "Explain the code of an error", Args: RangeArgs(0, "CODE"),
		Long: `Explain the code of an error: what it means, what to do, and the page about it.

CODE is a code such as PO-3001, or the error's name, in upper or lower case. Without it, the command
lists all codes.`,
		Example: "  " + program + " explain PO-3001\n  " + program + " explain ImageNotFound -o json\n  " + program + " explain",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return printAll(cmd.OutOrStdout(), &out)
			}
			return printCode(cmd.OutOrStdout(), &out, program, args[0])
		},
		ValidArgsFunction: completeCodes,
	}
	out.AddList(cmd)
	return cmd
}

// completeCodes offers codes, and names to those who begin one.
func completeCodes(_ *cobra.Command, args []string, begun string) (offered []string, _ cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	named := begun != "" && !strings.HasPrefix(strings.ToUpper(begun), "P")
	for _, e := range catalog.All() {
		if named {
			offered = append(offered, e.Name)
		} else {
			offered = append(offered, cobra.CompletionWithDesc(e.Code, e.Title))
		}
	}
	return offered, cobra.ShellCompDirectiveNoFileComp
}

func printAll(w io.Writer, out *Output) error {
	entries := withURLs(catalog.All())
	return out.Write(w, entries, func(w io.Writer) {
		Row(w, "CODE", "NAME", "TITLE")
		for _, e := range entries {
			Row(w, e.Code, e.Name, e.Title)
		}
	})
}

func printCode(w io.Writer, out *Output, program, code string) error {
	found := withURLs(catalog.Find(code))
	if len(found) == 0 {
		return Usage(fmt.Errorf("there is no code %s%s (fix: list all with `%s explain`)", Printable(code), question(codesNear(code)), program))
	}
	if !out.Table() && len(found) == 1 {
		return out.Write(w, found[0], nil)
	}
	return out.Write(w, found, func(w io.Writer) {
		for i, e := range found {
			if i > 0 {
				Say(w, "")
			}
			Say(w, "%s %s: %s", e.Code, e.Name, e.Title)
			Say(w, "  %s", e.Meaning)
			Say(w, "  fix: %s", e.Fix)
			Say(w, "  page: %s", e.Page)
		}
	})
}

// withURLs returns the entries with addresses of pages, for those who have no source tree.
func withURLs(entries []catalog.Entry) []catalog.Entry {
	for i := range entries {
		entries[i].Page = entries[i].URL()
	}
	return entries
}

// codesNear returns what a code that does not exist may have meant.
func codesNear(code string) []string {
	if near, found := catalog.Near(code); found {
		return []string{near.Code}
	}
	var names []string
	for _, e := range catalog.All() {
		names = append(names, e.Name)
	}
	return near(code, names)
}
