package cli

import (
	"time"

	"github.com/prometheus/common/model"
	"github.com/spf13/pflag"
)

// duration is the value of a flag. As Prometheus does, it takes days of 24 hours, weeks, and years
// of 365 days, beside what Go takes: 90m, 1.5h, 30d, 1y.
type duration time.Duration

// DurationVar is that of pflag, for people who think in days and years.
func DurationVar(fl *pflag.FlagSet, to *time.Duration, name string, initial time.Duration, usage string) {
	*to = initial
	fl.Var((*duration)(to), name, usage)
}

// Set implements pflag.Value.
func (d *duration) Set(text string) error {
	parsed, err := ParseDuration(text)
	if err == nil {
		*d = duration(parsed)
	}
	return err
}

// ParseDuration reads what a flag of DurationVar takes.
func ParseDuration(text string) (time.Duration, error) {
	if d, err := time.ParseDuration(text); err == nil {
		return d, nil
	}
	d, err := model.ParseDuration(text)
	return time.Duration(d), err
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
