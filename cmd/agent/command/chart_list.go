package command

import (
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/chartgrant"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
)

// chartAllowed is a grant as chart list prints it.
type chartAllowed struct {
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	Chart     string   `json:"chart"`
	Version   string   `json:"version"`
	Digest    string   `json:"digest"`
	Runners   []string `json:"runners"`
	// Rule is the rule of the policy; empty if it is gone.
	Rule string `json:"rule,omitempty"`
}

func newChartList() *cobra.Command {
	var (
		place grants
		out   cli.Output
	)
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the charts that are allowed",
		Args:    cli.ExactArgs(),
		Example: "  pipeops-agent chart list",
		RunE: func(cmd *cobra.Command, _ []string) error {
			store, _, _, err := place.open()
			if err != nil {
				return err
			}
			found, err := store.List(cmd.Context())
			if err != nil {
				return err
			}
			rules, err := place.ruled(cmd.Context())
			if err != nil {
				return err
			}
			all := make([]chartAllowed, len(found))
			for i, g := range found {
				all[i] = chartAllowed{g.Key.Namespace, g.Key.Name, g.Chart.Name, g.Chart.Version, g.Chart.Digest, g.Runners, ""}
				if name := chartgrant.RuleName(g.Key); rules[name] {
					all[i].Rule = name
				}
			}
			return out.Write(cmd.OutOrStdout(), all, func(w io.Writer) { chartTable(w, all) })
		},
	}
	place.add(cmd)
	out.AddList(cmd)
	return cmd
}

func chartTable(w io.Writer, all []chartAllowed) {
	cli.Row(w, "NAMESPACE", "RELEASE", "CHART", "VERSION", "RUNNERS", "RULE")
	for _, c := range all {
		rule := c.Rule
		if rule == "" {
			rule = "missing: run chart allow again, or chart revoke"
		}
		cli.Row(w, c.Namespace, c.Name, c.Chart, c.Version, strings.Join(c.Runners, ","), rule)
	}
}
