package monitoring

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// quoted returns text as a string of PromQL and of LogQL. Both have Go's strings and escapes:
// https://prometheus.io/docs/prometheus/latest/querying/basics/#string-literals
func quoted(text string) string { return strconv.Quote(text) }

// matcher is a condition on a label.
type matcher struct{ label, operator, value string }

func equals(label, value string) matcher { return matcher{label, "=", value} }

// beginsWith is a regular expression, which Prometheus anchors at both ends.
func beginsWith(label, prefix string) matcher {
	return matcher{label, "=~", regexp.QuoteMeta(prefix) + ".*"}
}

// selector returns the series of a metric, or the streams of a log, that meet all conditions.
func selector(metric string, matchers ...matcher) string {
	conditions := make([]string, len(matchers))
	for i, m := range matchers {
		conditions[i] = m.label + m.operator + quoted(m.value)
	}
	return metric + "{" + strings.Join(conditions, ",") + "}"
}

func rate(series string, window time.Duration) string {
	return fmt.Sprintf("rate(%s[%ds])", series, int(window.Seconds()))
}
