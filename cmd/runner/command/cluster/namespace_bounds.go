package cluster

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/tables"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// namespaceFlags are the flags that make up a namespace.
type namespaceFlags struct {
	labels, quota, defaults, allowFrom []string
	network                            string
	adopt                              bool
}

func (f *namespaceFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringArrayVar(&f.labels, "label", nil, "label of the namespace, as KEY=VALUE; may be repeated")
	fl.BoolVar(&f.adopt, "adopt", false, "take over a namespace that the agent did not create; the cluster owner's policy must name adopt-namespace")
	fl.StringSliceVar(&f.quota, "quota", nil, "quota of the namespace: cpu, memory, limits.cpu, limits.memory, pods and storage, as NAME=AMOUNT")
	fl.StringSliceVar(&f.defaults, "default", nil, "defaults of containers that name none: cpu, memory, limits.cpu and limits.memory, as NAME=AMOUNT")
	fl.StringVar(&f.network, "network", "", "network of the pods: isolated or open")
	fl.StringSliceVar(&f.allowFrom, "allow-from", nil, "namespaces that may reach the pods, in addition to the usual ones")
}

func (f *namespaceFlags) spec() (runnerapi.NamespaceSpec, error) {
	spec := runnerapi.NamespaceSpec{Adopt: f.adopt}
	for _, s := range f.labels {
		k, v, ok := strings.Cut(s, "=")
		if !ok || k == "" {
			return spec, cli.Usage(fmt.Errorf("--label %s: expected KEY=VALUE", s))
		}
		if spec.Labels == nil {
			spec.Labels = map[string]string{}
		}
		spec.Labels[k] = v
	}
	if len(f.quota) > 0 {
		spec.Quota = &runnerapi.NamespaceQuota{}
	}
	for _, s := range f.quota {
		if err := cmdutil.SetQuota(spec.Quota, s); err != nil {
			return spec, cli.Usage(fmt.Errorf("--quota %s: %w", s, err))
		}
	}
	if len(f.defaults) > 0 {
		spec.Limits = &runnerapi.NamespaceDefaults{}
	}
	for _, s := range f.defaults {
		name, amount, _ := strings.Cut(s, "=")
		if !cmdutil.SetAmount(&spec.Limits.Requests, &spec.Limits.Limits, name, amount) {
			return spec, cli.Usage(fmt.Errorf("--default %s: expected cpu, memory, limits.cpu or limits.memory, as NAME=AMOUNT", s))
		}
	}
	if f.network != "" || len(f.allowFrom) > 0 {
		spec.Network = &runnerapi.NamespaceNetwork{Mode: runnerapi.NetworkMode(f.network), AllowFrom: f.allowFrom}
	}
	return spec, nil
}

func namespaceDetails(w io.Writer, ns runnerapi.Namespace) {
	tables.Namespaces(w, ns)
	if ns.Quota != nil {
		used := ns.Used
		if used == nil {
			used = &runnerapi.NamespaceQuota{}
		}
		cli.Row(w)
		cli.Row(w, "QUOTA", "USED", "OF")
		for _, line := range [][3]string{
			{"cpu", used.Requests.CPU, ns.Quota.Requests.CPU}, {"memory", used.Requests.Memory, ns.Quota.Requests.Memory},
			{"limits.cpu", used.Limits.CPU, ns.Quota.Limits.CPU}, {"limits.memory", used.Limits.Memory, ns.Quota.Limits.Memory},
			{"pods", number(used.Pods), number(ns.Quota.Pods)}, {"storage", used.Storage, ns.Quota.Storage},
		} {
			if line[2] != "" {
				cli.Row(w, line[0], line[1], line[2])
			}
		}
	}
	if l := ns.Limits; l != nil {
		cli.Row(w)
		cli.Row(w, "DEFAULT", "CPU", "MEMORY")
		cli.Row(w, "requests", l.Requests.CPU, l.Requests.Memory)
		cli.Row(w, "limits", l.Limits.CPU, l.Limits.Memory)
	}
	cli.Row(w)
	others := strings.Join(ns.NetworkPolicies, ", ")
	switch n := ns.Network; {
	case n == nil && others != "":
		cli.Row(w, "NETWORK", "isolated, not by the agent: NetworkPolicy "+others)
	case n == nil:
		cli.Row(w, "NETWORK", "unknown: the agent cannot read the NetworkPolicies")
	case n.Mode == runnerapi.NetworkOpen:
		cli.Row(w, "NETWORK", "open: no NetworkPolicy isolates it")
	default:
		cli.Row(w, "NETWORK", n.Mode, strings.Join(n.AllowFrom, ","))
		if others != "" {
			cli.Row(w, "", "as well as NetworkPolicy "+others)
		}
	}
}

func number(n *int32) string {
	if n == nil {
		return ""
	}
	return strconv.Itoa(int(*n))
}
