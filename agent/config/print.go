package config

import (
	"cmp"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// masked stands for a secret that is set.
const masked = "********"

// Setting describes a setting in the reference. Flag and Default may be empty.
type Setting struct {
	Key, Env, Flag, Default, Usage string
	Secret                         bool
}

// Documented returns all settings in the order of the reference.
func Documented() []Setting {
	all := make([]Setting, len(settings))
	for i, s := range settings {
		all[i] = Setting{Key: s.key, Env: s.env, Flag: s.flag, Default: s.def, Usage: s.usage, Secret: s.secret}
	}
	return all
}

// Print shows the effective configuration and where each value comes from.
// Secrets are masked.
func (c Config) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "KEY\tVALUE\tFROM\tENVIRONMENT")
	for _, s := range settings {
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", s.key, c.shown(s), c.source[s.key], s.env)
	}
	return t.Flush()
}

func (c Config) shown(s setting) string {
	value := ""
	switch f := s.field(&c).(type) {
	case *string:
		value = *f
	case *[]string:
		value = strings.Join(*f, ",")
	case *[]netip.Prefix:
		for _, p := range *f {
			value += "," + p.String()
		}
		value = strings.TrimPrefix(value, ",")
	case *bool:
		value = fmt.Sprint(*f)
	case *int:
		value = strconv.Itoa(*f)
	case *time.Duration:
		value = f.String()
	}
	if s.secret && value != "" {
		return masked
	}
	return cmp.Or(value, "-")
}

// String keeps the secrets out of anything that prints a Config.
func (c Config) String() string { return "agent configuration of " + c.ClusterName }

// GoString is like String for %#v.
func (c Config) GoString() string { return c.String() }
