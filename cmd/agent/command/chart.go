package command

import (
	"cmp"
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/pipeops/pipeops-vm-agent/internal/chartgrant"
	"github.com/pipeops/pipeops-vm-agent/internal/kube"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
)

func newChart() *cobra.Command {
	cmd := group("chart", "Let a Runner deploy a chart that brings ClusterRoles", newChartAllow(), newChartList(), newChartRevoke())
	cmd.Long = "Let a Runner deploy one version of one chart that brings ClusterRoles or other objects of the\n" +
		"whole cluster.\n\n" +
		"The commands work with your rights in the cluster. They write roles of the agent's\n" +
		"ServiceAccount, and rules of the policy."
	return cmd
}

// grants is where grants are kept: the agent's cluster, and the policy.
type grants struct {
	ownCluster
	place   policyPlace
	account string
}

func (g *grants) add(cmd *cobra.Command) {
	g.ownCluster.add(cmd)
	cmd.Flags().StringVar(&g.account, "service-account", cmp.Or(os.Getenv("PIPEOPS_SERVICE_ACCOUNT"), objectmeta.FieldManager), "the agent's ServiceAccount")
	g.place.add(cmd.Flags())
}

func (g *grants) open() (chartgrant.Store, *kube.Client, *rest.Config, error) {
	config, err := kubernetesConfig(g.kubeconfig)
	if err != nil {
		return chartgrant.Store{}, nil, nil, err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return chartgrant.Store{}, nil, nil, fmt.Errorf("prepare the Kubernetes client: %w", err)
	}
	k, err := kube.New(config, kube.Options{Namespace: g.namespace})
	return chartgrant.Store{Client: client, Namespace: g.namespace, ServiceAccount: g.account}, k, config, err
}

// ruled returns the names of the policy's rules.
func (g *grants) ruled(ctx context.Context) (map[string]bool, error) {
	doc, source, err := g.place.read(ctx, &g.ownCluster)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source, err)
	}
	names := map[string]bool{}
	for _, r := range doc.Rules {
		names[r.Name] = true
	}
	return names, nil
}
