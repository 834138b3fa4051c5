package cli

import (
	"slices"

	"github.com/spf13/cobra"
)

// Root sets what the roots of all programs have in common. Mistakes of flags are in our words,
// `help` fails for an unknown command, and --version has no shorthand: -v is for verbose output.
func Root(root *cobra.Command) {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return Usage(FlagError(cmd, err)) })
	root.Flags().Bool("version", false, "print the version")
	root.SetHelpCommand(newHelp())
}

func newHelp() *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "Show the help of a command", Args: cobra.ArbitraryArgs,
		PersistentPreRunE: func(*cobra.Command, []string) error { return nil }, // it needs no context
		RunE: func(help *cobra.Command, args []string) error {
			cmd, rest, err := help.Root().Find(args)
			switch {
			case err != nil:
				return Usage(UnknownCommand(help.Root(), err))
			case len(rest) > 0 && cmd.HasAvailableSubCommands():
				return Usage(NoSubcommand(cmd, rest))
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
	}
}

// Meant has commands be suggested for words that other tools use, by the paths of the commands
// below the root.
func Meant(root *cobra.Command, words map[string][]string) {
	for _, cmd := range root.Commands() {
		path := cmd.CommandPath()[len(root.CommandPath())+1:]
		cmd.SuggestFor = words[path]
		for _, sub := range cmd.Commands() {
			sub.SuggestFor = words[path+" "+sub.Name()]
		}
	}
}

// suggestions returns the subcommands that a typed word may have meant: those of that meaning, or
// else those of a similar name.
func suggestions(cmd *cobra.Command, typed string) []string {
	var all []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() && slices.Contains(sub.SuggestFor, typed) {
			all = append(all, sub.Name())
		}
	}
	if all == nil {
		return near(typed, subcommands(cmd))
	}
	return all
}
