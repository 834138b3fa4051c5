package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// NegativeTime returns an error for a negative duration, which is invalid for every flag; nil if
// there is none.
func NegativeTime(cmd *cobra.Command) (err error) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if err == nil && f.Value.Type() == "duration" && strings.HasPrefix(f.Value.String(), "-") {
			err = fmt.Errorf("--%s: must not be negative; give a time such as 30s, 5m or 1h", f.Name)
		}
	})
	return err
}
