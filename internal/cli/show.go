package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Time returns a time as all tables show it: in UTC, as in JSON, logs and audit logs, so that it
// means the same in every place.
func Time(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Ago returns a time that has been, as kubectl shows it.
func Ago(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return Age(t) + " ago"
}

// Age returns how long ago a time was.
func Age(t time.Time) string { return Short(time.Since(t)) }

// Until returns a time to come.
func Until(t time.Time) string {
	switch d := time.Until(t); {
	case t.IsZero():
		return "never"
	case d <= 0:
		return "ended"
	default:
		return "in " + Short(d)
	}
}

// Short returns a duration in the largest unit that is still informative.
func Short(d time.Duration) string {
	switch d = max(d, 0); {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// Count returns a number of things whose plural ends with s.
func Count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// Labels returns key=value pairs in the order of their keys.
func Labels(m map[string]string) string {
	list := make([]string, 0, len(m))
	for k, v := range m {
		list = append(list, k+"="+v)
	}
	slices.Sort(list)
	return strings.Join(list, ",")
}

// Cores returns thousandths of a core.
func Cores(millis int64) string { return fmt.Sprintf("%.2f", float64(millis)/1000) }

// Memory returns bytes as every list and page shows them: 20 Ki, 512 Mi, 16 Gi, 15.6 Gi.
func Memory(bytes int64) string {
	if bytes > 0 && bytes < 1<<20 {
		return fmt.Sprintf("%d Ki", (bytes+1023)>>10)
	}
	if bytes < 1<<30 {
		return fmt.Sprintf("%d Mi", bytes>>20)
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", float64(bytes)/(1<<30)), ".0") + " Gi"
}
