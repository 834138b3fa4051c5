package cli

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// FlagError returns an error that names what a flag takes, where pflag would show the text of Go's
// parsers. For an unknown flag it names the one that was probably meant. It returns other errors
// unchanged.
func FlagError(cmd *cobra.Command, err error) error {
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok && unknown.GetSpecifiedShortnames() == "" {
		return fmt.Errorf("%w%s", err, question(flagsNear(unknown.GetSpecifiedName(), cmd)))
	}
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	flag, cause := invalid.GetFlag(), errors.Unwrap(invalid)
	var number *strconv.NumError
	switch {
	case errors.Is(cause, strconv.ErrRange):
		cause = errors.New("is too large a number")
	case errors.As(cause, &number) && flag.Value.Type() == "bool":
		cause = errors.New("is neither true nor false")
	case errors.As(cause, &number):
		cause = errors.New("is not a whole number")
	case flag.Value.Type() == "duration":
		cause = errors.New("is not a time such as 30s, 5m, 1h or 30d")
	case flag.Value.Type() == "stringToString":
		cause = errors.New("is not KEY=VALUE")
	}
	return fmt.Errorf("--%s: %q %w", flag.Name, invalid.GetValue(), cause)
}

// flagsNear returns the flags that may have been meant.
func flagsNear(typed string, cmd *cobra.Command) []string {
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	found := near(typed, names)
	for i, name := range found {
		found[i] = "--" + name
	}
	return found
}
