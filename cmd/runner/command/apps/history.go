package apps

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// metricsHistory prints an App's metrics over time.
func metricsHistory(ctx context.Context, a *cmdutil.CLI, t *cmdutil.Target, out cli.Output, key runnerapi.Key, opts runnerapi.HistoryOptions) error {
	history, err := t.Monitoring().MetricsHistory(ctx, key, opts)
	if err != nil {
		return cmdutil.At(t, key.String(), err)
	}
	if len(history.Series) == 0 && out.Table() {
		a.Say("Prometheus has no values of this App yet; it takes some minutes after a pod starts")
	}
	if history.Omitted > 0 {
		a.Say("%d more series are left out", history.Omitted)
	}
	return out.Write(a.Out, history, func(w io.Writer) { historyTable(w, history, opts.ByPod) })
}

func checkHistory(opts runnerapi.HistoryOptions, by string) error {
	switch {
	case by != "app" && by != "pod":
		return errors.New("--by: is app or pod")
	case opts.Since < 0 || opts.Since > runnerapi.MaxHistory:
		return errors.New("--since: is a duration of at most 30d")
	case opts.Since == 0 && (opts.Step != 0 || by != "app"):
		return errors.New("--step and --by are for --since")
	}
	return nil
}

func historyTable(w io.Writer, history runnerapi.MetricsHistory, byPod bool) {
	header := []any{"METRIC", "UNIT", "LOWEST", "AVERAGE", "HIGHEST", "LAST", "OVER TIME"}
	if byPod {
		header = append([]any{"POD"}, header...)
	}
	cli.Row(w, header...)
	for _, s := range history.Series {
		lowest, highest, last := bounds(s.Values)
		cells := []any{s.Metric, s.Unit, figure(lowest), figure(average(s.Values)), figure(highest), figure(last), sparkline(s.Values)}
		if byPod {
			cells = append([]any{s.Pod}, cells...)
		}
		cli.Row(w, cells...)
	}
}

// bounds returns the lowest, the highest and the last of the values that there are.
func bounds(values []*float64) (lowest, highest, last float64) {
	first := true
	for _, v := range values {
		if v == nil {
			continue
		}
		if first {
			lowest, highest, first = *v, *v, false
		}
		lowest, highest, last = min(lowest, *v), max(highest, *v), *v
	}
	return lowest, highest, last
}

// figure returns a number with three digits and a prefix of SI: 12.3M.
func figure(value float64) string {
	for _, prefix := range []struct {
		size float64
		name string
	}{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if value >= prefix.size {
			return fmt.Sprintf("%.3g%s", value/prefix.size, prefix.name)
		}
	}
	return fmt.Sprintf("%.3g", value)
}
