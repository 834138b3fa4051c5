package monitoring

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// allocations is OpenCost's answer: a set for each step, of which there is one.
// https://www.opencost.io/docs/integrations/api
type allocations struct {
	Data []map[string]*allocation `json:"data"`
}

type allocation struct {
	Properties struct {
		Namespace string `json:"namespace"`
	} `json:"properties"`
	CPU          float64 `json:"cpuCost"`
	GPU          float64 `json:"gpuCost"`
	RAM          float64 `json:"ramCost"`
	PV           float64 `json:"pvCost"`
	Network      float64 `json:"networkCost"`
	LoadBalancer float64 `json:"loadBalancerCost"`
	Shared       float64 `json:"sharedCost"`
	External     float64 `json:"externalCost"`
	Total        float64 `json:"totalCost"`
}

// appLabel is the label of an App's pods as OpenCost has it: with underscores for what Prometheus
// does not take in names.
const appLabel = "label:pipeops_io_app"

// Cost implements backend.Monitoring.
func (r *Reader) Cost(ctx context.Context, opts runnerapi.CostOptions) (runnerapi.CostList, error) {
	if opts.Namespace != "" {
		if ok, err := r.apps.Manages(ctx, opts.Namespace); err != nil || !ok {
			return runnerapi.CostList{}, cmp.Or(err, error(runnerapi.NotManaged(opts.Namespace)))
		}
	}
	end := r.now().UTC().Truncate(time.Minute)
	out := runnerapi.CostList{Start: end.Add(-opts.Since), End: end, Items: []runnerapi.Cost{}}
	query := url.Values{
		"window":    {out.Start.Format(time.RFC3339) + "," + end.Format(time.RFC3339)},
		"aggregate": {"namespace"}, "accumulate": {"true"},
	}
	if opts.ByApp {
		query.Set("aggregate", "namespace,"+appLabel)
	}
	var answer allocations
	if err := r.get(ctx, opencost, "/allocation", query, &answer); err != nil {
		return runnerapi.CostList{}, err
	}
	for _, set := range answer.Data {
		for name, a := range set {
			cost, ok := costOf(name, a, opts)
			if !ok {
				continue
			}
			if managed, err := r.apps.Manages(ctx, cost.Namespace); err != nil {
				return runnerapi.CostList{}, err
			} else if managed {
				out.Items = append(out.Items, cost)
			}
		}
	}
	slices.SortFunc(out.Items, func(a, b runnerapi.Cost) int {
		return cmp.Or(cmp.Compare(b.Total, a.Total), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.App, b.App))
	})
	return out, nil
}

// costOf returns a cost of the namespace that was asked for; false for others, and for what
// OpenCost counts in no namespace, such as __idle__. By App, its name is NAMESPACE/APP.
func costOf(name string, a *allocation, opts runnerapi.CostOptions) (runnerapi.Cost, bool) {
	namespace, app, _ := strings.Cut(name, "/")
	if a == nil || namespace == "" || strings.HasPrefix(namespace, "__") || a.Properties.Namespace != namespace ||
		opts.Namespace != "" && namespace != opts.Namespace {
		return runnerapi.Cost{}, false
	}
	if strings.HasPrefix(app, "__") || !opts.ByApp {
		app = ""
	}
	return runnerapi.Cost{
		Namespace: text(namespace), App: text(app), CPU: a.CPU, Memory: a.RAM, Storage: a.PV, Network: a.Network + a.LoadBalancer,
		Other: a.GPU + a.Shared + a.External, Total: a.Total,
	}, true
}
