package input

import (
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/pipeops/pipeops-vm-agent/internal/denylist"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// routing are API groups of controllers that route outside traffic, or make names or certificates
// for it. A group below one of them counts too.
var routing = []string{
	"gateway.networking.k8s.io", "gateway.networking.x-k8s.io", "traefik.io", "traefik.containo.us",
	"networking.istio.io", "projectcontour.io", "k8s.nginx.org", "gateway.nginx.org", "appprotect.f5.com", "cis.f5.com",
	"haproxy.org", "configuration.konghq.com", "getambassador.io", "solo.io", "kgateway.dev", "envoyproxy.io",
	"apisix.apache.org", "zalando.org", "appscode.com", "route.openshift.io", "operator.openshift.io",
	"serving.knative.dev", "networking.internal.knative.dev", "cert-manager.io", "externaldns.k8s.io", "externaldns.nginx.org",
	"networking.gke.io", "elbv2.k8s.aws", "tailscale.com", "metallb.io", "cilium.io",
}

// routeless are kinds of these groups that route nothing by themselves.
var routeless = map[string]bool{
	"Middleware.traefik.io": true, "MiddlewareTCP.traefik.io": true, "TraefikService.traefik.io": true,
	"ServersTransport.traefik.io": true, "ServersTransportTCP.traefik.io": true, "TLSOption.traefik.io": true,
	"GatewayClass.gateway.networking.k8s.io": true, "ReferenceGrant.gateway.networking.k8s.io": true,
	"BackendTLSPolicy.gateway.networking.k8s.io": true,
	"DestinationRule.networking.istio.io":        true, "WorkloadEntry.networking.istio.io": true,
	"Issuer.cert-manager.io": true, "ClusterIssuer.cert-manager.io": true,
	"Policy.k8s.nginx.org": true, "CiliumNetworkPolicy.cilium.io": true,
}

// routes matches names of kinds, and of their resources, that route outside traffic by all
// appearances.
var routes = regexp.MustCompile(`(?i)ingress|gateway|route|virtual(host|server|service)|httpproxy|domainmapping|loadbalancer|dns(record|endpoint)`)

// Routes reports whether objects of a kind or resource may route outside traffic: by its API group,
// or by its name.
func Routes(group, name string) bool {
	for _, known := range routing {
		if group == known || strings.HasSuffix(group, "."+known) {
			return true
		}
	}
	return routes.MatchString(name)
}

// unnamed returns what an object would route without a host that can be checked.
func unnamed(gvk schema.GroupVersionKind, hosts []runnerapi.NameIntent) []runnerapi.NameIntent {
	kind := denylist.Kind(gvk)
	if len(hosts) > 0 || routeless[kind] || scheme.Scheme.Recognizes(gvk) || !Routes(gvk.Group, gvk.Kind) {
		return nil
	}
	return []runnerapi.NameIntent{{Field: "kind", Name: kind}}
}

// outside gathers fields by which something is reached from outside without a host: Services of
// Kubernetes, what looks like one in a custom resource, and ports of a node.
func (w *walk) outside(field, key string, v any) {
	way := ""
	switch {
	case key == "type" || strings.HasSuffix(strings.ToLower(key), "servicetype"):
		if v == "LoadBalancer" || v == "NodePort" {
			way, _ = v.(string)
		}
	case key == "hostNetwork" && v == true:
		way = key
	case key == "hostPort":
		if port, ok := v.(int64); !ok || port != 0 {
			way = key
		}
	case key == "externalIPs":
		if ips, ok := v.([]any); !ok || len(ips) > 0 {
			way = key
		}
	}
	if way != "" {
		w.in.Outside = append(w.in.Outside, runnerapi.NameIntent{Field: field, Name: way})
	}
}
