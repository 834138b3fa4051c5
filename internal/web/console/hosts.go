package console

import (
	"context"
	"net/http"
	"net/url"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/routes"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
)

const hostsPath = operatorapi.ConsolePath + "/hosts"

// hostsData is what the page Public hosts shows.
type hostsData struct {
	web.Rows[routes.Route]
	Omitted int
	Grants  []store.HostGrant
}

func (p *controlPlanePages) hosts(w http.ResponseWriter, r *http.Request) error {
	live := operatorapi.ConsolePath + "/live/hosts?" + r.URL.RawQuery
	return show(p.site, w, r, "hosts", page(r, "Public hosts", hostsPath, live), p.readHosts(r.URL.Query()))
}

func (p *controlPlanePages) hostsLive(w http.ResponseWriter, r *http.Request) error {
	return follow(p.site, w, r, "hosts", p.readHosts(r.URL.Query()))
}

func (p *controlPlanePages) readHosts(query url.Values) func(context.Context) (hostsData, error) {
	return func(ctx context.Context) (data hostsData, err error) {
		list, err := operatorapi.ListRoutes.Do(ctx, p.opts.API, operatorapi.RoutesInput{})
		if err != nil {
			return data, err
		}
		data.Rows, data.Omitted = web.Paged(list.Items, query), list.Omitted
		grants, err := operatorapi.ListHostGrants.Do(ctx, p.opts.API, struct{}{})
		data.Grants = grants.Items
		return data, err
	}
}

var hostChanges = map[string]change{
	"/hosts/new": {
		call: operatorapi.CreateHostGrant.ID, title: "Grant a host", page: hostsPath,
		ask: func(string, url.Values) web.Question {
			return web.Question{
				Text:   "The agent may serve the host without a proof in DNS.",
				Button: "Grant the host", Command: program + " gateway grant create HOST AGENT", Back: hostsPath, BackText: "Public hosts",
				Fields: []web.Field{
					{Kind: "text", Name: "host", Label: "Host", Required: true, Hint: "Such as www.example.com."},
					{Kind: "text", Name: "agent", Label: "Agent", Required: true, Hint: "Name or ID."},
				},
			}
		},
		do: func(ctx context.Context, t operatorapi.Target, f form) (outcome, error) {
			_, err := operatorapi.CreateHostGrant.Do(ctx, t, operatorapi.CreateHostGrantInput{Write: f.write(), Host: f.text("host"), Body: operatorapi.CreateHostGrantBody{Agent: f.text("agent")}})
			return outcome{to: hostsPath, done: "create-host-grant"}, err
		},
	},
	"/hosts/{name}/take": {
		call: operatorapi.DeleteHostGrant.ID, title: "Take back {name}", page: hostsPath,
		ask: func(name string, _ url.Values) web.Question {
			return web.Question{
				Text:   "The agent serves the host no longer, unless DNS proves that it may.",
				Button: "Take the host back", Danger: true, Command: web.CommandLine(program+" gateway grant delete", name), Back: hostsPath, BackText: "Public hosts",
			}
		},
		do: func(ctx context.Context, t operatorapi.Target, f form) (outcome, error) {
			_, err := operatorapi.DeleteHostGrant.Do(ctx, t, operatorapi.HostInput{Write: f.write(), Host: f.name})
			return outcome{to: hostsPath, done: "delete-host-grant"}, err
		},
	},
}
