package flags

import (
	"os"

	"github.com/spf13/pflag"
)

// EnvOperator names the file with an operator's credentials.
const EnvOperator = envPrefix + "OPERATOR_CREDENTIALS"

// Operator selects the credentials with which commands call the operator API.
type Operator struct{ file string }

// Add adds the flag.
func (o *Operator) Add(f *pflag.FlagSet) {
	f.StringVar(&o.file, "credentials", "", "file with an operator's credentials; the command then works by the control plane's API, from anywhere ($"+EnvOperator+")")
	_ = f.SetAnnotation("credentials", notFromEnvironment, []string{})
}

// Given reports whether the flag was given.
func (o *Operator) Given() bool { return o.file != "" }

// File returns the file; empty for none.
func (o *Operator) File() string {
	if o.file != "" {
		return o.file
	}
	return os.Getenv(EnvOperator)
}
