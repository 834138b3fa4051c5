package dashboard

import (
	"context"
	"net/http"
	"net/url"

	corev1 "k8s.io/api/core/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/kube"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// clusterPages are the pages about the cluster and the agent that only show.
type clusterPages struct{ *site }

type nodesData struct {
	web.Rows[runnerapi.Node]
	Facts kube.Facts
}

func (d *clusterPages) nodes() view[nodesData] {
	return view[nodesData]{
		site: d.site, name: "nodes", page: titled("Nodes", "/nodes"),
		read: func(r *http.Request) func(context.Context) (nodesData, error) {
			return func(ctx context.Context) (nodesData, error) { return d.readNodes(ctx, r.URL.Query()) }
		},
		watch: func(*http.Request) []watched { return []watched{{list: &corev1.NodeList{}}} },
	}
}

func (d *clusterPages) readNodes(ctx context.Context, query url.Values) (nodesData, error) {
	nodes, err := d.cluster.facts.ListNodes(ctx)
	if err != nil {
		return nodesData{}, err
	}
	f, err := d.cluster.facts.Facts(ctx)
	return nodesData{web.Paged(nodes, query), f}, err
}
