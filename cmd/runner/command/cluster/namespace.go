package cluster

import (
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// NewNamespace returns the command namespace.
func NewNamespace(a *cmdutil.CLI) *cobra.Command {
	return cli.Group("namespace", "Manage the namespaces of an agent",
		newNamespaceCreate(a), newNamespaceList(a), newNamespaceGet(a), newNamespaceDelete(a))
}

func namespaceTable(w io.Writer, list ...runnerapi.Namespace) {
	cli.Row(w, "NAME", "PHASE", "APPS", "LABELS", "AGE")
	for _, ns := range list {
		labels := make([]string, 0, len(ns.Labels))
		for _, k := range slices.Sorted(maps.Keys(ns.Labels)) {
			labels = append(labels, k+"="+ns.Labels[k])
		}
		cli.Row(w, ns.Name, ns.Phase, ns.Apps, strings.Join(labels, ","), cli.Age(ns.CreatedAt))
	}
}
