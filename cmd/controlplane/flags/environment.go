// Package flags has the flags that several commands of the control plane take.
package flags

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
)

const envPrefix = "PIPEOPS_"

// Variables whose value may contain a password, which the flag may not.
const (
	EnvDatabase  = envPrefix + "DATABASE"
	EnvBrokerURL = envPrefix + "BROKER_URL"
	// EnvOpenIDSecret has no flag: a command line must not have a secret.
	EnvOpenIDSecret = envPrefix + "OPENID_CLIENT_SECRET"
)

// FromEnvironment gives the flags that were not given their values from the
// environment: those of serve, which a container sets, and the data directory.
// All that cannot be read is reported at once.
func FromEnvironment(cmd *cobra.Command) error {
	var errs []error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		name := envPrefix + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		value := os.Getenv(name)
		inherited := cmd.InheritedFlags().Lookup(f.Name) != nil
		if f.Changed || value == "" || f.Name == "help" || f.Annotations[notFromEnvironment] != nil || cmd.Name() != "serve" && !inherited {
			return
		}
		if err := f.Value.Set(value); err != nil {
			// Not the value: it may be a secret in the wrong place.
			errs = append(errs, fmt.Errorf("%s: is not a %s", name, f.Value.Type()))
		}
	})
	if len(errs) > 0 {
		return cli.Usage(errors.Join(errs...))
	}
	return nil
}

const notFromEnvironment = "not-from-environment"
