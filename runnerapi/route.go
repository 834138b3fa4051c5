package runnerapi

// RouteState is whether the public reaches a route.
type RouteState string

// The states of a route.
const (
	RouteServing   RouteState = "serving"
	RouteSuspended RouteState = "suspended" // reason says why
)

// CertificateState is whether the gateway has a certificate for a route's host.
type CertificateState string

// The states of a certificate.
const (
	CertificateReady   CertificateState = "ready"
	CertificatePending CertificateState = "pending"
	CertificateFailed  CertificateState = "failed" // the gateway tries again
)

// RouteMode is how public requests come to a route's Service.
type RouteMode string

// The modes of a route.
const (
	RouteTunnel RouteMode = "tunnel" // through the agent's tunnel
	RouteDirect RouteMode = "direct" // through the cluster's own load balancer
)

// Route is a public host, or a path of it, that leads to a Service.
type Route struct {
	URL         string           `json:"url"`
	Host        string           `json:"host"`
	Path        string           `json:"path"`
	PathType    string           `json:"pathType" enum:"Prefix,Exact,ImplementationSpecific,RegularExpression" doc:"As in an Ingress, or RegularExpression: path has one of RE2 that matches the whole path."`
	Conditions  string           `json:"conditions,omitempty" doc:"What an HTTPRoute demands of a request beside its host and path: method, headers and parameters of the query." example:"GET, header X-Env=\"canary\""`
	Namespace   string           `json:"namespace"`
	App         string           `json:"app,omitempty" doc:"Absent for a route of a chart, a set of manifests or a Git source."`
	Service     string           `json:"service,omitempty" doc:"Name of the Service, after its namespace and a slash if that is another one. Absent for a route that the gateway cannot carry."`
	Port        int32            `json:"port,omitempty" doc:"Port of the Service. Absent for a route that the gateway cannot carry."`
	Protocol    string           `json:"protocol,omitempty" enum:"TCP,UDP,TLS" doc:"TCP or UDP of a public port; TLS of a host whose connections reach the App with their TLS; absent for requests of HTTP."`
	PublicPort  int32            `json:"publicPort,omitempty" doc:"Port of the gateway; absent for requests of HTTP, and while there is none."`
	State       RouteState       `json:"state" enum:"serving,suspended" doc:"serving: the gateway passes requests on, and they are answered. suspended: reason tells why not."`
	Mode        RouteMode        `json:"mode" enum:"tunnel,direct" doc:"How requests come to the Service: tunnel: through the agent's tunnel. direct: through the cluster's own load balancer."`
	ModeReason  string           `json:"modeReason,omitempty" doc:"Why requests come through the tunnel though there is a load balancer with a public address."`
	Proof       string           `json:"proof,omitempty" enum:"given,cname,txt,grant" doc:"What proves that the agent may serve the host; absent while nothing does."`
	Certificate CertificateState `json:"certificate,omitempty" enum:"ready,pending,failed" doc:"Whether the gateway has a certificate for the host; absent for a host that it does not serve."`
	Reason      string           `json:"reason,omitempty" doc:"Why it is suspended, or why there is no certificate."`
	Records     []DNSRecord      `json:"records,omitempty" doc:"DNS records, each of which proves that the agent may serve the host. Absent for a host below the gateway's domain, and where the control plane has no gateway."`
	Backends    []RouteShare     `json:"backends,omitempty" doc:"The Services of an HTTPRoute that has several. service is then the one with the largest weight."`
	Filters     []string         `json:"filters,omitempty" doc:"Types of the HTTPRoute's filters. With RequestRedirect the gateway answers by itself, and there is no Service." example:"[\"URLRewrite\"]"`
	Warnings    []string         `json:"warnings,omitempty" doc:"Annotations of the Ingress or HTTPRoute that are ignored, with their values and the fix, and mirrors that get no requests."`
}

// RouteShare is one of several Services behind a route.
type RouteShare struct {
	Service string `json:"service" doc:"Name of the Service, after its namespace and a slash if that is another one."`
	Port    int32  `json:"port"`
	Weight  int32  `json:"weight" doc:"Its share of the requests, in proportion to the weights of all."`
}

// DNSRecord is a DNS record that the owner of a host creates.
type DNSRecord struct {
	Name  string `json:"name" example:"shop.example.com"`
	Type  string `json:"type" enum:"CNAME,TXT"`
	Value string `json:"value"`
}

// RouteList is the routes of an agent.
type RouteList struct {
	Items []Route `json:"items" nullable:"false"`
	Page
}
