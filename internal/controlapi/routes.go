package controlapi

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

const pathRoutes = "/v1/agent/routes"

// The limits of routes that an agent sends. An agent with more routes sends those of a fair share
// of each namespace, and the number of those that it left out.
const (
	MaxRoutes = 1000
	// MaxRoutesBytes bounds the encoded routes, so that the request is accepted.
	MaxRoutesBytes = maxRequestBody - 64<<10
)

// Route is a public host, or a path of it, that leads to a Service in the agent's cluster.
type Route struct {
	Host      string `json:"host" minLength:"1" maxLength:"253" pattern:"^(\\*\\.)?[a-z0-9]([a-z0-9-]*[a-z0-9])?(\\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$"`
	Path      string `json:"path" minLength:"1" maxLength:"1024" pattern:"^/"`
	PathType  string `json:"pathType" enum:"Prefix,Exact,ImplementationSpecific" doc:"As in an Ingress."`
	TLS       bool   `json:"tls" doc:"The Ingress names a certificate for the host."`
	Namespace string `json:"namespace" minLength:"1" maxLength:"63"`
	App       string `json:"app,omitempty" maxLength:"253" doc:"Absent for a route of a chart, a set of manifests or a Git source."`
	Service   string `json:"service,omitempty" maxLength:"253" doc:"Name of the Service, after its namespace and a slash if that is another one. Absent for a route that cannot be carried, or that redirects."`
	Port      int32  `json:"port,omitempty" minimum:"0" maximum:"65535" doc:"Port of the Service. Absent where service is."`
	Ready     bool   `json:"ready" doc:"A request would be answered."`
	Reason    string `json:"reason,omitempty" maxLength:"512" doc:"Why it is not ready."`
	Endpoint  string `json:"endpoint,omitempty" maxLength:"253" doc:"Public address of the cluster's load balancer for the host, an IP address or a name: HTTPS is at port 443."`
	// Protocol and PublicPort are of a public port, whose Host is the App's below the gateway's
	// domain. TLS is of a host at the port of HTTPS.
	Protocol   string `json:"protocol,omitempty" enum:"TCP,UDP,TLS" doc:"TCP or UDP of a public port; TLS of a host whose connections reach the App with their TLS; absent for requests of HTTP."`
	PublicPort int32  `json:"publicPort,omitempty" minimum:"0" maximum:"65535" doc:"Public port that the App names; absent where the control plane chooses it."`
}

// RoutesRequest is the complete list of an agent's routes: a route that it lacks is gone.
type RoutesRequest struct {
	Routes  []Route `json:"routes" maxItems:"1000"`
	Omitted int     `json:"omitted,omitempty" minimum:"0" maximum:"1000000" doc:"Routes that the agent has beyond what may be sent."`
}

// RoutesState is what the control plane knows about an agent's routes.
type RoutesState struct {
	Digest string `json:"digest" doc:"Of the set, as RoutesRequest.Digest makes it; empty for none."`
	// Gateway and Hosts tell the agent whether the public reaches its routes.
	Gateway string       `json:"gateway,omitempty" doc:"Domain of the control plane's gateway; absent where it has none."`
	Agent   string       `json:"agent,omitempty" doc:"ID of the agent, of which its Apps' hosts below the gateway's domain are made."`
	Hosts   []HostStatus `json:"hosts,omitempty" maxItems:"1000" doc:"The hosts of the routes, by name."`
	Ports   []PortStatus `json:"ports,omitempty" maxItems:"1000" doc:"The public ports of Apps."`
}

// PortStatus is what the control plane does with a public port of an App.
type PortStatus struct {
	Namespace  string `json:"namespace" maxLength:"63"`
	App        string `json:"app" maxLength:"253"`
	Protocol   string `json:"protocol" enum:"TCP,UDP"`
	Port       int32  `json:"port" minimum:"1" maximum:"65535" doc:"Port of the App's Service."`
	PublicPort int32  `json:"publicPort,omitempty" minimum:"0" maximum:"65535" doc:"Port of the gateway; absent while there is none."`
	Served     bool   `json:"served" doc:"The gateway passes connections on."`
	Reason     string `json:"reason,omitempty" maxLength:"512" doc:"Why it does not."`
}

// Digest identifies a list of routes; it is empty for an empty list. The order counts, so callers
// must keep a fixed order.
func (r RoutesRequest) Digest() string {
	if len(r.Routes) == 0 && r.Omitted == 0 {
		return ""
	}
	text, err := json.Marshal(r)
	if err != nil { // strings, numbers and booleans
		panic("controlapi: " + err.Error())
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// check returns an error for what the schema cannot express: two equal routes that differ in the
// rest are ambiguous.
func (r RoutesRequest) check() error {
	type key struct {
		host, path, pathType, namespace, app, service, protocol string
		port                                                    int32 // of a public port
	}
	seen, kinds := make(map[key]bool, len(r.Routes)), map[string]string{}
	for _, route := range r.Routes {
		if (route.Service == "") != (route.Port == 0) {
			return problem.Errorf(problem.Invalid, "send the Service and its port, or neither",
				"the route %s%s has no Service or no port", route.Host, route.Path).WithField("routes")
		}
		if route.Endpoint != "" && (!route.TLS || strings.HasPrefix(route.Host, "*.") || !gatewaywire.IsEndpoint(route.Endpoint)) {
			return problem.Errorf(problem.Invalid, "send an IP address or a name in DNS, of a host with TLS that is not a wildcard",
				"the endpoint %.253q of %s is not valid", route.Endpoint, route.Host).WithField("routes")
		}
		if !route.protocolFits() {
			return problem.Errorf(problem.Invalid, "send an App, the port of its Service, the path / and no endpoint",
				"the public port %d of %s is not valid", route.PublicPort, route.Host).WithField("routes")
		}
		if kind := route.kind(); kind != "" && cmp.Or(kinds[route.Host], kind) != kind {
			return problem.Errorf(problem.Invalid, "send the routes of one App and port whose connections keep their TLS, or those of HTTP",
				"the host %s has routes of several kinds", route.Host).WithField("routes")
		} else if kind != "" {
			kinds[route.Host] = kind
		}
		k := key{host: route.Host, path: route.Path, pathType: route.PathType, namespace: route.Namespace, app: route.App, service: route.Service}
		if route.Protocol != "" {
			k.protocol, k.port = route.Protocol, route.Port
		}
		if seen[k] {
			return problem.Errorf(problem.Invalid, "send each host and path of a Service once",
				"Service %s/%s has %s%s (%s) twice", route.Namespace, route.Service, route.Host, route.Path, route.PathType).WithField("routes")
		}
		seen[k] = true
	}
	return nil
}

// protocolFits reports whether a route has what its protocol needs, and nothing else. A host whose
// TLS the App ends may have no port: it is not carried.
func (r *Route) protocolFits() bool {
	if r.Protocol == "" {
		return r.PublicPort == 0
	}
	if r.Protocol == gatewaywire.TLS && (r.PublicPort != 0 || r.TLS) || r.Protocol != gatewaywire.TLS && r.Port == 0 {
		return false
	}
	return r.App != "" && r.Endpoint == "" && r.Path == "/"
}

// kind returns how a route has its host carried; empty if it does not, as one of a public port. A
// host is carried in one way.
func (r *Route) kind() string {
	switch {
	case gatewaywire.IsPort(r.Protocol) || r.Port == 0 && !r.Ready:
		return ""
	case r.Protocol == "":
		return "HTTP"
	}
	return strings.Join([]string{r.Protocol, r.Namespace, r.App, strconv.Itoa(int(r.Port))}, " ")
}

// Routes returns this agent's routes as the control plane has them.
func (c *Client) Routes(ctx context.Context) (RoutesState, error) {
	return answered[RoutesState](func(state any) error { return c.send(ctx, http.MethodGet, c.named, pathRoutes, nil, nil, state) })
}

// PutRoutes replaces the routes of this agent.
func (c *Client) PutRoutes(ctx context.Context, req RoutesRequest) (RoutesState, error) {
	if req.Routes == nil {
		req.Routes = []Route{}
	}
	return answered[RoutesState](func(state any) error { return c.send(ctx, http.MethodPut, c.named, pathRoutes, nil, req, state) })
}

type (
	routesInput  struct{ Body RoutesRequest }
	routesOutput struct{ Body RoutesState }
)

func (h *handler) addRoutes(agent huma.API) {
	get := operation("get-routes", pathRoutes, "Say which of the agent's routes are known", "certificate", http.StatusOK)
	get.Method = http.MethodGet
	huma.Register(agent, get, h.getRoutes)
	put := operation("put-routes", pathRoutes, "Replace the agent's routes", "certificate", http.StatusOK)
	put.Method = http.MethodPut
	huma.Register(agent, put, h.putRoutes)
}

func (h *handler) getRoutes(ctx context.Context, _ *struct{}) (*routesOutput, error) {
	state, err := h.backend.Routes(ctx, peerOf(ctx).agentID)
	return &routesOutput{Body: state}, h.problem(ctx, err)
}

func (h *handler) putRoutes(ctx context.Context, in *routesInput) (*routesOutput, error) {
	if err := in.Body.check(); err != nil {
		return nil, h.problem(ctx, err)
	}
	state, err := h.backend.PutRoutes(ctx, peerOf(ctx).agentID, in.Body)
	return &routesOutput{Body: state}, h.problem(ctx, err)
}

// PassedURL returns where the public reaches a host whose connections keep their TLS.
func PassedURL(host string) string { return PortURL(gatewaywire.TLS, host, portHTTPS) }

// portHTTPS is the port at which the public reaches hosts.
const portHTTPS = 443

// PortURL returns where the public reaches a port of the gateway. Without a port, the host alone is
// known.
func PortURL(protocol, host string, port int) string {
	url := strings.ToLower(protocol) + "://" + host
	if port == 0 {
		return url
	}
	return url + ":" + strconv.Itoa(port)
}
