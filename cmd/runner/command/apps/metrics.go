package apps

import (
	"cmp"
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// NewMetrics returns the command metrics.
func NewMetrics(a *cmdutil.CLI) *cobra.Command {
	var out cli.Output
	var namespace, by string
	var history runnerapi.HistoryOptions
	cmd := &cobra.Command{
		Use:   "metrics [AGENT] NAME",
		Short: "Show what an App uses, now or over time",
		Long: `Compare what an App uses with what it requests. The figures come from metrics-server, which the
cluster must have.

The command also shows requests that would fit, and the figures that they are based on. If the
App's spec turns right-sizing on (deploy --right-sizing recommend), these cover the last seven
days. Otherwise, they cover two days at most, and only the time since the agent started.

With --since, the command shows CPU, memory, restarts and network over time, and requests if the
App counts them. These come from Prometheus, also for pods that are gone. The cluster must have it:
` + "`pipeops-agent component install prometheus`" + `.`,
		Example: `  pipeops-runner metrics shop web
  pipeops-runner metrics shop web --since 24h
  pipeops-runner metrics shop web --since 6h --step 5m --by pod -o json`,
		Args:              cli.ExactArgs("AGENT", "NAME"),
		ValidArgsFunction: a.CompleteApp,
		RunE: func(cmd *cobra.Command, args []string) error {
			key := runnerapi.Key{Namespace: namespace, Name: args[1]}
			if err := checkHistory(history, by); err != nil {
				return cli.Usage(err)
			}
			history.ByPod = by == "pod"
			return a.On(cmd.Context(), args[0], func(ctx context.Context, t *cmdutil.Target) error {
				if history.Since > 0 {
					return metricsHistory(ctx, a, t, out, key, history)
				}
				m, err := t.Monitoring().Metrics(ctx, key)
				if err != nil {
					return cmdutil.At(t, key.String(), err)
				}
				if len(m.Pods) == 0 {
					a.Say("metrics-server has no figures of this App yet; it takes about a minute after a pod starts")
				}
				return out.Write(a.Out, m, func(w io.Writer) { metricsTable(w, m) })
			})
		},
	}
	out.Add(cmd)
	cmdutil.NamespaceFlag(cmd, &namespace)
	f := cmd.Flags()
	cli.DurationVar(f, &history.Since, "since", 0, "show metrics over time from this long ago, e.g. 24h, at most 30d")
	cli.DurationVar(f, &history.Step, "step", 0, "time between two values, e.g. 5m (default: about 240 values)")
	f.StringVar(&by, "by", "app", "with --since: app for sums, pod for each pod")
	return cmd
}

func metricsTable(w io.Writer, m runnerapi.AppMetrics) {
	cli.Row(w, "POD", "CONTAINER", "CPU", "REQUEST", "LIMIT", "MEMORY", "REQUEST", "LIMIT")
	for _, pod := range m.Pods {
		for _, c := range pod.Containers {
			cli.Row(w, pod.Pod, c.Name, millis(&c.CPU.Used), millis(c.CPU.Request), millis(c.CPU.Limit),
				mebi(&c.Memory.Used), mebi(c.Memory.Request), mebi(c.Memory.Limit))
		}
	}
	cli.Row(w)
	cli.Row(w, "CONTAINER", "RESOURCE", "FITS", "VPA", "APPLIED", "PEAK", "P95", "MARGIN", "BOUND BY", "SAMPLES")
	for _, c := range m.Sizing.Containers {
		vpa := vpaOf(m.VPA, c.Name)
		cli.Row(w, c.Name, "cpu", millis(&c.CPU.Request), millis(vpa.CPU), millis(c.CPU.Applied), millis(&c.CPU.Peak), millis(&c.CPU.P95),
			margin(c.CPU), c.CPU.Bound, c.Samples)
		cli.Row(w, c.Name, "memory", mebi(&c.Memory.Request), mebi(vpa.Memory), mebi(c.Memory.Applied), mebi(&c.Memory.Peak), mebi(&c.Memory.P95),
			margin(c.Memory), c.Memory.Bound, c.Samples)
	}
	cli.Row(w)
	cli.Row(w, "Right-sizing:", m.Sizing.Mode)
	if at := m.Sizing.AppliedAt; at != nil {
		cli.Row(w, "Applied:", fmt.Sprintf("%s (%s), %s", cli.Time(*at), cli.Ago(*at), m.Sizing.AppliedBy))
	}
	if m.Sizing.Waiting != "" {
		cli.Row(w, "Waiting:", m.Sizing.Waiting)
	}
	if m.VPA != nil {
		cli.Row(w, "VPA:", fmt.Sprintf("%s, updateMode %s%s", m.VPA.Name, cmp.Or(m.VPA.Mode, "not set"), vpaConflict(m)))
	}
}

// vpaOf returns what VPA recommends for a container; nothing without a recommendation.
func vpaOf(vpa *runnerapi.VPAMetrics, container string) runnerapi.VPARecommendation {
	if vpa != nil {
		for _, c := range vpa.Containers {
			if c.Name == container {
				return c
			}
		}
	}
	return runnerapi.VPARecommendation{}
}

// vpaConflict says what to do if both the agent and VPA change the requests.
func vpaConflict(m runnerapi.AppMetrics) string {
	if m.Sizing.Mode != runnerapi.SizingApply || m.VPA.Mode == "Off" {
		return ""
	}
	return " (fix: set it to Off, because the agent sizes this App)"
}

func margin(f runnerapi.Fit) string { return fmt.Sprintf("%s + %d %%", f.Basis, f.Margin) }

func millis(n *int64) string {
	if n == nil {
		return ""
	}
	return fmt.Sprintf("%dm", *n)
}

func mebi(n *int64) string {
	if n == nil {
		return ""
	}
	return cli.Memory(*n)
}
