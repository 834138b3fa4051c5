package apps

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// NewTraffic returns the command traffic.
func NewTraffic(a *cmdutil.CLI) *cobra.Command {
	var out cli.Output
	var namespace string
	var opts runnerapi.TrafficOptions
	cmd := &cobra.Command{
		Use:   "traffic [AGENT] NAME",
		Short: "Show what visitors of an App request",
		Long: `Show requests, errors, bytes and latency of each public host of an App, over the last hour or the
last day. The agent counts them itself, at all of its replicas; the cluster needs no Prometheus.

Requests to hosts in direct mode do not pass the agent, and are not counted. Neither is what the
gateway responds to without the agent, as while the agent is away.`,
		Example: `  pipeops-runner traffic shop web
  pipeops-runner traffic shop web --since 24h -o json`,
		Args:              cli.ExactArgs("AGENT", "NAME"),
		ValidArgsFunction: a.CompleteApp,
		RunE: func(cmd *cobra.Command, args []string) error {
			if opts.Since != time.Hour && opts.Since != 24*time.Hour {
				return cli.Usage(errors.New("--since: is 1h or 24h"))
			}
			key := runnerapi.Key{Namespace: namespace, Name: args[1]}
			return a.On(cmd.Context(), args[0], func(ctx context.Context, t *cmdutil.Target) error {
				traffic, err := t.Routes().Traffic(ctx, key, opts)
				if err != nil {
					return cmdutil.At(t, key.String(), err)
				}
				if out.Table() {
					sayOfTraffic(a, traffic)
				}
				return out.Write(a.Out, traffic, func(w io.Writer) { trafficTable(w, traffic) })
			})
		},
	}
	out.Add(cmd)
	cmdutil.NamespaceFlag(cmd, &namespace)
	cli.DurationVar(cmd.Flags(), &opts.Since, "since", time.Hour, "how far back: 1h or 24h")
	return cmd
}

// sayOfTraffic says what the figures leave out.
func sayOfTraffic(a *cmdutil.CLI, t runnerapi.Traffic) {
	if len(t.Hosts) == 0 {
		a.Say("the App has no public host")
	}
	if t.Incomplete != "" {
		a.Say("the requests of other replicas of the agent are left out: %s", t.Incomplete)
	}
	for _, h := range t.Hosts {
		switch {
		case h.Mode == runnerapi.RouteDirect:
			a.Say("%s is in direct mode: its requests come through the cluster's load balancer, and are not counted", h.Host)
		case !h.Counted:
			a.Say("%s is not counted: the agent counts as many other hosts as it can", h.Host)
		}
	}
}

func trafficTable(w io.Writer, t runnerapi.Traffic) {
	cli.Row(w, "HOST", "MODE", "REQUESTS", "PER SECOND", "2XX", "3XX", "4XX", "5XX", "P50", "P95", "P99", "RECEIVED", "SENT", "BY THE AGENT")
	seconds := max(t.End.Sub(t.Start).Seconds(), 1)
	for _, h := range t.Hosts {
		var p50, p95, p99 string
		if l := h.Latency; l != nil {
			p50, p95, p99 = millisText(l.P50), millisText(l.P95), millisText(l.P99)
		}
		cli.Row(w, h.Host, string(h.Mode), h.Requests, figure(float64(h.Requests)/seconds), h.Statuses.Successful, h.Statuses.Redirection, h.Statuses.ClientError,
			h.Statuses.ServerError, p50, p95, p99, cli.Memory(h.Received), cli.Memory(h.Sent), failedText(h.Failed))
	}
	if len(t.Hosts) == 0 {
		return
	}
	requests, failures, latencies := trafficSeries(t)
	cli.Row(w)
	cli.Row(w, "FIGURE", "HIGHEST", "LAST", "OVER TIME")
	step := strings.TrimSuffix(strings.TrimSuffix(t.Step, "0s"), "0m")
	for _, s := range []struct {
		name   string
		text   func(float64) string
		values []*float64
	}{{"requests in " + step, figure, requests}, {"errors in " + step, figure, failures}, {"p95 of " + step, millisText, latencies}} {
		_, highest, last := bounds(s.values)
		cli.Row(w, s.name, s.text(highest), s.text(last), sparkline(s.values))
	}
}

// trafficSeries returns the points as series.
func trafficSeries(t runnerapi.Traffic) (requests, failures, latencies []*float64) {
	for _, p := range t.Points {
		requests, failures = append(requests, new(float64(p.Requests))), append(failures, new(float64(p.Errors)))
		latencies = append(latencies, p.P95)
	}
	return requests, failures, latencies
}

// failedText returns what the agent itself has responded, the most frequent reason first.
func failedText(failed map[string]int64) string {
	reasons := make([]string, 0, len(failed))
	for reason := range failed {
		reasons = append(reasons, reason)
	}
	slices.SortFunc(reasons, func(a, b string) int { return cmp.Or(cmp.Compare(failed[b], failed[a]), cmp.Compare(a, b)) })
	for i, reason := range reasons {
		reasons[i] = fmt.Sprintf("%s %d", reason, failed[reason])
	}
	return strings.Join(reasons, ", ")
}

// millisText returns milliseconds with a unit.
func millisText(ms float64) string {
	if ms >= 1000 {
		return fmt.Sprintf("%.3gs", ms/1000)
	}
	return fmt.Sprintf("%.3gms", ms)
}

// NewAccessLog returns the command access-log.
func NewAccessLog(a *cmdutil.CLI) *cobra.Command {
	c := &LogsCommand{CLI: a}
	cmd := &cobra.Command{
		Use:   "access-log [AGENT] NAME",
		Short: "Print or follow the requests of an App's visitors",
		Long: `Print the last requests of an App's visitors: address, method and URL without the query, status,
bytes sent, seconds, user agent and request ID. The agent keeps up to 1000 of them, in memory.

Addresses of visitors are personal data. So the agent keeps the log only while a rule of the
cluster owner's policy names the command get-app-access-log, which no default rule does.

If the agent has several replicas, the log is that of one of them, which each line names as its
pod.`,
		Example: `  pipeops-runner access-log shop web --tail 20
  pipeops-runner access-log shop web -f --grep '" 500 '
  pipeops-runner access-log shop web --since 10m -o json`,
		Args:              cli.ExactArgs("AGENT", "NAME"),
		ValidArgsFunction: a.CompleteApp,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.On(cmd.Context(), args[0], func(ctx context.Context, t *cmdutil.Target) error {
				key := runnerapi.Key{Namespace: c.Namespace, Name: args[1]}
				if err := t.Routes().AccessLog(ctx, key, c.Opts, c.Print); err != nil {
					return cmdutil.At(t, key.String(), err)
				}
				return nil
			})
		},
	}
	c.lineFlags(cmd, "print new requests until interrupted")
	c.timestamps = true
	cmd.Flags().Lookup("timestamps").DefValue = "true"
	cmd.Flags().Lookup("tail").Usage = "number of last requests; -1 for all"
	cmd.Flags().Lookup("prefix").Usage = "put the name of the agent's pod before each line"
	cmd.Flags().Lookup("output").Usage = "json for one object per line, with time, pod, line and request; yaml or " + cli.JSONPath + "TEMPLATE likewise"
	return cmd
}
