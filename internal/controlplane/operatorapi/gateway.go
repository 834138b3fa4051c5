package operatorapi

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/routes"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

// The calls about public hosts.
var (
	ListRoutes = Call[RoutesInput, routes.List]{
		Description{Method: "GET", Path: Prefix + "routes", ID: "list-public-routes", Role: administration.RoleViewer, Command: "routes",
			Summary: "List the public hosts of agents' Apps"},
		func(ctx context.Context, a *administration.Admin, in *RoutesInput) (routes.List, error) {
			list, err := a.Gateway.Routes(ctx, in.Agent)
			if list.Items == nil {
				list.Items = []routes.Route{}
			}
			return list, err
		},
	}
	ListHostGrants = Call[struct{}, List[store.HostGrant]]{
		Description{Method: "GET", Path: Prefix + "gateway/grants", ID: "list-host-grants", Role: administration.RoleViewer, Command: "gateway grant list",
			Summary: "List the hosts that were granted to agents"},
		func(ctx context.Context, a *administration.Admin, _ *struct{}) (List[store.HostGrant], error) {
			return listOf(a.Gateway.Grants(ctx))
		},
	}
	CreateHostGrant = Call[CreateHostGrantInput, store.HostGrant]{
		Description{Method: "PUT", Path: Prefix + "gateway/grants/{host}", ID: "create-host-grant", Role: administration.RoleOperator, Command: "gateway grant create",
			Summary: "Let an agent serve a public host without a proof in DNS"},
		func(ctx context.Context, a *administration.Admin, in *CreateHostGrantInput) (store.HostGrant, error) {
			return a.Gateway.Grant(ctx, in.Host, in.Body.Agent)
		},
	}
	DeleteHostGrant = Call[HostInput, Done]{
		Description{Method: "DELETE", Path: Prefix + "gateway/grants/{host}", ID: "delete-host-grant", Role: administration.RoleOperator, Command: "gateway grant delete",
			Summary: "Take back a host that was granted"},
		func(ctx context.Context, a *administration.Admin, in *HostInput) (Done, error) {
			return Done{}, a.Gateway.Take(ctx, in.Host)
		},
	}
	GetGatewayCA = Call[struct{}, GatewayCA]{
		Description{Method: "GET", Path: Prefix + "gateway/ca", ID: "get-gateway-ca", Role: administration.RoleViewer, Command: "gateway ca get",
			Summary: "Return the certificate of the gateway's own CA"},
		func(ctx context.Context, a *administration.Admin, _ *struct{}) (GatewayCA, error) {
			text, err := a.Gateway.CA(ctx)
			return GatewayCA{string(text)}, err
		},
	}
)

// RoutesInput selects routes.
type RoutesInput struct {
	Agent string `query:"agent" maxLength:"253" doc:"Name or ID of an agent; all if absent."`
}

// HostInput names a public host.
type HostInput struct {
	Write
	Host string `path:"host" maxLength:"253"`
}

// CreateHostGrantInput names a public host and its agent.
type CreateHostGrantInput struct {
	Write
	Host string `path:"host" maxLength:"253"`
	Body CreateHostGrantBody
}

// CreateHostGrantBody names the agent of a host.
type CreateHostGrantBody struct {
	Agent string `json:"agent" minLength:"1" maxLength:"253" doc:"Name or ID of the agent."`
}

// GatewayCA is the certificate of the gateway's own CA.
type GatewayCA struct {
	Certificate string `json:"certificate" doc:"In PEM."`
}
