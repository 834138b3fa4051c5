package cli

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/pflag"
)

// FlagError says what a flag takes, where pflag would show what Go's parsers
// say of it. Other mistakes, as a flag that there is not, it leaves as they are.
func FlagError(err error) error {
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
		cause = errors.New("is not a time such as 30s, 5m or 1h")
	}
	return fmt.Errorf("--%s: %q %w", flag.Name, invalid.GetValue(), cause)
}
