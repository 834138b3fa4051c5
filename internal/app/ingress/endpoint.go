package ingress

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/egress"
	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
)

// endpointOf returns the address at which the public reaches the Ingress' controller by HTTPS;
// empty if there is none. allowed are networks that count as public.
func endpointOf(in *networkingv1.Ingress, allowed []netip.Prefix) string {
	var found []string
	for _, at := range in.Status.LoadBalancer.Ingress {
		if !hasHTTPS(at) {
			continue
		}
		if address, err := netip.ParseAddr(at.IP); err == nil {
			if egress.IsPublic(address, allowed) {
				found = append(found, egress.Plain(address).String())
			}
			continue
		}
		if name := strings.ToLower(strings.TrimSuffix(at.Hostname, ".")); gatewaywire.IsEndpoint(name) {
			found = append(found, name)
		}
	}
	if len(found) == 0 {
		return ""
	}
	// A controller may report its addresses in another order each time.
	return slices.MinFunc(found, func(a, b string) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b)) })
}

// rank orders addresses by how surely a gateway reaches them: IPv4, names, IPv6.
func rank(endpoint string) int {
	switch address, err := netip.ParseAddr(endpoint); {
	case err != nil:
		return 1
	case address.Is4():
		return 0
	}
	return 2
}

// hasHTTPS reports whether a load balancer has the port of HTTPS. Most do not report their ports.
func hasHTTPS(at networkingv1.IngressLoadBalancerIngress) bool {
	return len(at.Ports) == 0 || slices.ContainsFunc(at.Ports, func(p networkingv1.IngressPortStatus) bool { return p.Port == 443 })
}

// settleEndpoints leaves the endpoint of a host only where all its routes have the same one: a
// controller serves all paths of a host. A gateway verifies the certificate of one host, so that
// wildcards have none.
func settleEndpoints(routes []Route) {
	endpoints := map[string]string{}
	for _, r := range routes {
		endpoint := r.Endpoint
		if had, known := endpoints[r.Host]; known && had != endpoint || !r.TLS || strings.HasPrefix(r.Host, "*.") {
			endpoint = ""
		}
		endpoints[r.Host] = endpoint
	}
	for i := range routes {
		routes[i].Endpoint = endpoints[routes[i].Host]
	}
}
