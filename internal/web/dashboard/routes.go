package dashboard

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

type routesData struct {
	web.Rows[routeRow]
	Unread *problem.Error
}

// routeRow is a host of an App or an Ingress, with what the agent wrote about it into the App.
type routeRow struct {
	Host, Owner, Path, State, Reason, Fix string
	URL                                   string
}

func (d *clusterPages) routes() view[routesData] {
	return view[routesData]{
		site: d.site, name: "routes", page: titled("Routes", "/routes"),
		read: func(r *http.Request) func(context.Context) (routesData, error) {
			return func(ctx context.Context) (routesData, error) { return d.readRoutes(ctx, r.URL.Query()) }
		},
		watch: func(*http.Request) []watched {
			return []watched{allApps(), {list: &networkingv1.IngressList{}, opts: []client.ListOption{client.MatchingLabels(objectmeta.Labels())}}}
		},
	}
}

func (d *clusterPages) readRoutes(ctx context.Context, query url.Values) (routesData, error) {
	apps, err := d.listApps(ctx)
	if err != nil {
		return routesData{}, err
	}
	var rows []routeRow
	for _, a := range apps {
		rows = append(rows, routesOf(a)...)
	}
	others, err := d.otherIngresses(ctx)
	return routesData{web.Paged(append(rows, others...), query), unread(err, "listing Ingresses")}, nil
}

// routesOf returns the routes of an App: those that are served, and one line for what is not.
func routesOf(a runnerapi.App) (rows []routeRow) {
	if a.Spec.Ingress == nil {
		return nil
	}
	row := routeRow{Owner: a.Namespace + "/" + a.Name, Path: pathOf(a), State: "serving"}
	for _, at := range a.Status.PublicURLs {
		served := row
		served.URL = at
		if u, err := url.Parse(at); err == nil {
			served.Host = u.Host + u.Path
		}
		rows = append(rows, served)
	}
	for _, c := range a.Status.Conditions {
		if c.Type == runnerapi.ConditionIngressReady && c.Status != "True" {
			row.Host, row.State, row.Reason, row.Fix = strings.Join(hostsOf(a), ", "), "suspended", web.Sentence(c.Message), c.Fix
			rows = append(rows, row)
		}
	}
	if len(rows) == 0 {
		row.Host, row.State = strings.Join(hostsOf(a), ", "), "pending"
		rows = append(rows, row)
	}
	return rows
}

func hostsOf(a runnerapi.App) []string {
	hosts := make([]string, 0, len(a.Spec.Ingress.Hosts))
	for _, h := range a.Spec.Ingress.Hosts {
		hosts = append(hosts, h.Host+h.Path)
	}
	if len(hosts) == 0 {
		hosts = []string{"the host below the gateway's domain"}
	}
	return hosts
}

// otherIngresses returns the hosts of Ingresses of charts, sets and sources.
func (d *clusterPages) otherIngresses(ctx context.Context) (rows []routeRow, err error) {
	var list networkingv1.IngressList
	if err := d.cluster.client.List(ctx, &list, client.MatchingLabels(objectmeta.Labels())); err != nil {
		return nil, err
	}
	for _, in := range list.Items {
		if in.Labels[objectmeta.App] != "" {
			continue
		}
		for _, rule := range in.Spec.Rules {
			row := routeRow{Host: rule.Host, Owner: "Ingress " + in.Namespace + "/" + in.Name, State: "pending", Reason: "No ingress controller has given it an address."}
			if len(in.Status.LoadBalancer.Ingress) > 0 {
				row.State, row.Reason = "serving", ""
			}
			rows = append(rows, row)
		}
	}
	return rows, nil
}
