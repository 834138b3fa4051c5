package cli

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/pipeops/pipeops-vm-agent/internal/moment"
)

// duration is the value of a flag.
type duration time.Duration

// DurationVar is that of pflag, for people who think in days and years.
func DurationVar(fl *pflag.FlagSet, to *time.Duration, name string, initial time.Duration, usage string) {
	*to = initial
	fl.Var((*duration)(to), name, usage)
}

// Set implements pflag.Value.
func (d *duration) Set(text string) error {
	parsed, err := moment.Duration(text)
	if err == nil {
		*d = duration(parsed)
	}
	return err
}

// String implements pflag.Value. The help shows no default for "0".
func (d *duration) String() string {
	if *d == 0 {
		return "0"
	}
	return time.Duration(*d).String()
}

// Type implements pflag.Value.
func (d *duration) Type() string { return "duration" }
