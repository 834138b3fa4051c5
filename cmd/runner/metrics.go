package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func newMetrics(a *app) *cobra.Command {
	var out cli.Output
	var namespace string
	cmd := &cobra.Command{
		Use:   "metrics AGENT NAME",
		Short: "Compare an App's use with its requests",
		Long: `Compare what an App uses with what it requests. The figures come from metrics-server, which the
cluster must have.

The command also shows requests that would fit, and the figures that they are based on. If the
App's spec turns right-sizing on (deploy --right-sizing recommend), these cover the last seven
days. Otherwise, they cover two days at most, and only the time since the agent started.`,
		Example:           "  pipeops-runner metrics shop web",
		Args:              exactArgs("AGENT", "NAME"),
		ValidArgsFunction: a.completeApp,
		RunE: func(cmd *cobra.Command, args []string) error {
			key := runnerapi.Key{Namespace: namespace, Name: args[1]}
			return a.on(cmd.Context(), args[0], func(ctx context.Context, t *target) error {
				m, err := t.Metrics(ctx, key)
				if err != nil {
					return at(t, key.String(), err)
				}
				if len(m.Pods) == 0 {
					a.say("metrics-server has no figures of this App yet; it takes about a minute after a pod starts")
				}
				return out.Write(a.out, m, func(w io.Writer) { metricsTable(w, m) })
			})
		},
	}
	out.Add(cmd)
	namespaceFlag(cmd, &namespace)
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
	cli.Row(w, "CONTAINER", "RESOURCE", "FITS", "APPLIED", "PEAK", "P95", "MARGIN", "BOUND BY", "SAMPLES")
	for _, c := range m.Sizing.Containers {
		cli.Row(w, c.Name, "cpu", millis(&c.CPU.Request), millis(c.CPU.Applied), millis(&c.CPU.Peak), millis(&c.CPU.P95),
			margin(c.CPU), c.CPU.Bound, c.Samples)
		cli.Row(w, c.Name, "memory", mebi(&c.Memory.Request), mebi(c.Memory.Applied), mebi(&c.Memory.Peak), mebi(&c.Memory.P95),
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
	return cli.Mebibytes(*n)
}
