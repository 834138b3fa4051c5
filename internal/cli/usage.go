package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// usageError is a mistake on the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// Usage returns err as a mistake on the command line.
func Usage(err error) error { return usageError{err} }

// IsUsage reports whether an error is a mistake on the command line.
func IsUsage(err error) bool {
	_, ok := errors.AsType[usageError](err)
	return ok
}

// SeeHelp returns the fix for every mistake on a command line.
func SeeHelp(command string) string { return fmt.Sprintf("see `%s --help`", command) }

// NoSubcommand returns the error of a call of a command that only groups others. It lists them, and
// suggests the one that was probably meant.
func NoSubcommand(cmd *cobra.Command, args []string) error {
	names := subcommands(cmd)
	list := strings.Join(names, ", ")
	if len(args) == 0 {
		return fmt.Errorf("%s needs a subcommand: %s", cmd.CommandPath(), list)
	}
	return fmt.Errorf("unknown command %q of %s%s; it has %s", args[0], cmd.CommandPath(), question(suggestions(cmd, args[0])), list)
}

// UnknownCommand returns cobra's error about an unknown command in one line, with what may have
// been meant; nil if err is another error.
func UnknownCommand(root *cobra.Command, err error) error {
	if err == nil || IsUsage(err) || !strings.HasPrefix(err.Error(), "unknown command") {
		return nil
	}
	what, _, _ := strings.Cut(err.Error(), "\n")
	typed, _, _ := strings.Cut(strings.TrimPrefix(what, `unknown command "`), `"`)
	return errors.New(what + question(suggestions(root, typed)))
}

func subcommands(cmd *cobra.Command) []string {
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	return names
}

// near returns the names that the typed text may have meant. cobra decides what is similar, as for
// its own commands.
func near(typed string, names []string) []string {
	all := &cobra.Command{SuggestionsMinimumDistance: 2}
	for _, name := range names {
		all.AddCommand(&cobra.Command{Use: name, Run: func(*cobra.Command, []string) {}})
	}
	return all.SuggestionsFor(typed)
}

// question asks whether one of the names was meant, if there are any.
func question(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return " (did you mean " + strings.Join(names, " or ") + "?)"
}
