package dashboard

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/agent/update"
	"github.com/pipeops/pipeops-vm-agent/internal/audit"
	"github.com/pipeops/pipeops-vm-agent/internal/components"
	"github.com/pipeops/pipeops-vm-agent/internal/kube"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

type nodesData struct {
	web.Rows[runnerapi.Node]
	Facts kube.Facts
}

func (d *Dashboard) nodes(w http.ResponseWriter, r *http.Request) error {
	return show(d, w, r, "nodes", page(r, "Nodes", "/nodes", "", nil), func(ctx context.Context) (nodesData, error) {
		nodes, err := d.cluster.facts.ListNodes(ctx)
		if err != nil {
			return nodesData{}, err
		}
		f, err := d.cluster.facts.Facts(ctx)
		return nodesData{web.Paged(nodes, r.URL.Query()), f}, err
	})
}

type auditData struct {
	Items        []runnerapi.AuditRecord
	Head         runnerapi.AuditHead
	First, Last  int64
	Older, Newer string // queries; empty for none
	Refused      bool   // only refusals are shown
	Store        string
}

// maxAudit is how many records are read for one page of the audit log.
const maxAudit = 50

// audit shows the newest records, or those up to a number.
func (d *Dashboard) audit(w http.ResponseWriter, r *http.Request) error {
	return show(d, w, r, "audit", page(r, "Audit log", "/audit", "", nil), func(ctx context.Context) (auditData, error) {
		data := auditData{Refused: r.URL.Query().Get("refused") == "true", Store: d.opts.Audit.String()}
		after := int64(-1)
		if to, err := strconv.ParseInt(r.URL.Query().Get("to"), 10, 64); err == nil && to > 0 {
			after = max(to-maxAudit, 0)
		}
		list, err := audit.Read(ctx, d.opts.Audit, after, maxAudit)
		if err != nil {
			return data, unread(err, "reading the audit log")
		}
		data.show(list)
		return data, nil
	})
}

func (a *auditData) show(list runnerapi.AuditList) {
	a.Head, a.Items = list.Head, list.Items
	if n := len(a.Items); n > 0 {
		a.First, a.Last = a.Items[0].Seq, a.Items[n-1].Seq
		if a.First > 1 {
			a.Older = a.query(a.First - 1)
		}
		if a.Last < a.Head.Seq {
			a.Newer = a.query(a.Last + maxAudit)
		}
	}
	if a.Refused {
		a.Items = slices.DeleteFunc(a.Items, func(r runnerapi.AuditRecord) bool { return r.Outcome != runnerapi.AuditRefused })
	}
	slices.Reverse(a.Items)
}

func (a *auditData) query(to int64) string {
	q := url.Values{"to": {strconv.FormatInt(to, 10)}}
	if a.Refused {
		q.Set("refused", "true")
	}
	return "?" + q.Encode()
}

func (d *Dashboard) components(w http.ResponseWriter, r *http.Request) error {
	return show(d, w, r, "components", page(r, "Components", "/components", "", nil), func(ctx context.Context) ([]componentRow, error) {
		all, err := d.opts.Components(ctx)
		if err != nil {
			return nil, unread(err, "reading the components")
		}
		var rows []componentRow
		for _, s := range all {
			rows = append(rows, componentRows(s)...)
		}
		return rows, nil
	})
}

type componentRow struct {
	components.Status
	Is, Release, Version, Newest, Why, Fix string
}

// componentRows returns a row for each release of a component, or one that says that there is none.
func componentRows(s components.Status) (rows []componentRow) {
	for _, r := range s.Releases {
		row := componentRow{Status: s, Is: r.Status, Release: r.Namespace + "/" + r.Name, Version: r.Version, Newest: r.Newest}
		if r.Status == components.Deployed && s.State != nil {
			row.Is = "ready"
			if !s.State.Ready {
				row.Is, row.Why, row.Fix = "not ready", s.State.Workload+": "+s.State.Message, s.State.Fix
			}
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		row := componentRow{Status: s, Is: "absent"}
		if s.Present != "" {
			row.Is, row.Why = "by others", s.Present
		}
		rows = append(rows, row)
	}
	return rows
}

type updatesData struct {
	Agent   agentState
	Record  update.Record
	Problem *problem.Error
	Program string
}

func (d *Dashboard) updates(w http.ResponseWriter, r *http.Request) error {
	return show(d, w, r, "updates", page(r, "Updates", "/updates", "", nil), func(ctx context.Context) (updatesData, error) {
		data := updatesData{Agent: d.agent(ctx), Program: d.opts.Version}
		var err error
		if d.opts.Updates != nil {
			data.Record, err = d.opts.Updates(ctx)
		}
		data.Problem = unread(err, "reading the last update")
		return data, nil
	})
}

type routesData struct {
	web.Rows[routeRow]
	Unread *problem.Error
}

// routeRow is a host of an App or an Ingress, with what the agent wrote about it into the App.
type routeRow struct {
	Host, Owner, Path, State, Reason, Fix string
	URL                                   string
}

func (d *Dashboard) publicRoutes(w http.ResponseWriter, r *http.Request) error {
	return show(d, w, r, "routes", page(r, "Routes", "/routes", "", nil), func(ctx context.Context) (routesData, error) {
		apps, err := d.listApps(ctx)
		if err != nil {
			return routesData{}, err
		}
		var rows []routeRow
		for _, a := range apps {
			rows = append(rows, routesOf(a)...)
		}
		others, err := d.otherIngresses(ctx)
		return routesData{web.Paged(append(rows, others...), r.URL.Query()), unread(err, "listing Ingresses")}, nil
	})
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
func (d *Dashboard) otherIngresses(ctx context.Context) (rows []routeRow, err error) {
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
