package cli

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/moment"
)

// Group returns a command that only holds others.
func Group(use, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.ArbitraryArgs, RunE: func(cmd *cobra.Command, args []string) error {
		return Usage(NoSubcommand(cmd, args))
	}}
	cmd.AddCommand(commands...)
	return cmd
}

// AddGroup adds commands below their own title in the help.
func AddGroup(root *cobra.Command, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: title, Title: title})
	for _, cmd := range commands {
		cmd.GroupID = title
		root.AddCommand(cmd)
	}
}

// ExactArgs names the arguments that are missing.
func ExactArgs(names ...string) cobra.PositionalArgs {
	return RangeArgs(len(names), names...)
}

// RangeArgs is like ExactArgs with only the first few arguments required.
func RangeArgs(least int, names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if n := len(args); n >= least && n <= len(names) {
			return nil
		}
		if n := len(args); n > len(names) && cmd.Flags().Changed("wait") {
			if _, err := moment.Duration(args[n-1]); err == nil {
				return Usage(fmt.Errorf("the time to wait is given with an equals sign: --wait=%s", args[n-1]))
			}
		}
		want := cmp.Or(strings.Join(names, " "), "no arguments")
		return Usage(fmt.Errorf("%s takes %s, not %s%s", cmd.CommandPath(), want, Count(len(args), "argument"), instead(cmd, args, len(names))))
	}
}

// LeastArgs takes one argument of that name, or more.
func LeastArgs(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return nil
		}
		return Usage(fmt.Errorf("%s takes %s, and there is none", cmd.CommandPath(), name))
	}
}

// extra is the annotation of a command that has a flag for what others take as an argument.
const extra = "extra-argument"

// Extra names the flag that takes what may be given as one argument too many, such as --replicas.
func Extra(cmd *cobra.Command, flag string) *cobra.Command {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[extra] = flag
	return cmd
}

// instead returns the flag that was meant by one argument too many.
func instead(cmd *cobra.Command, args []string, most int) string {
	if flag := cmd.Annotations[extra]; flag != "" && len(args) == most+1 {
		return question([]string{flag + " " + args[most]})
	}
	return ""
}
