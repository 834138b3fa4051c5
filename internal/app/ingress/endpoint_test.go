package ingress

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	networkingv1 "k8s.io/api/networking/v1"
)

func at(list ...networkingv1.IngressLoadBalancerIngress) *networkingv1.Ingress {
	in := &networkingv1.Ingress{}
	in.Status.LoadBalancer.Ingress = list
	return in
}

// TestEndpoint_PublicAddress expects a stable order, and no address of the cluster's own network.
func TestEndpoint_PublicAddress(t *testing.T) {
	type lb = networkingv1.IngressLoadBalancerIngress
	https, http := []networkingv1.IngressPortStatus{{Port: 80}, {Port: 443}}, []networkingv1.IngressPortStatus{{Port: 80}}
	for name, c := range map[string]struct {
		in   *networkingv1.Ingress
		want string
	}{
		"none":                    {at(), ""},
		"an IPv4 address":         {at(lb{IP: "93.184.216.34"}), "93.184.216.34"},
		"an IPv6 address":         {at(lb{IP: "2606:2800::0:1"}), "2606:2800::1"},
		"IPv4 in IPv6":            {at(lb{IP: "::ffff:93.184.216.34"}), "93.184.216.34"},
		"a name":                  {at(lb{Hostname: "LB.eu.example.com."}), "lb.eu.example.com"},
		"IPv4 before all others":  {at(lb{IP: "2606:2800::1"}, lb{Hostname: "lb.example.com"}, lb{IP: "93.184.216.34"}), "93.184.216.34"},
		"the first of two":        {at(lb{IP: "93.184.216.35"}, lb{IP: "93.184.216.34"}), "93.184.216.34"},
		"a public one of several": {at(lb{IP: "10.0.0.1"}, lb{IP: "93.184.216.34"}), "93.184.216.34"},
		"private":                 {at(lb{IP: "192.168.1.240"}), ""},
		"shared NAT":              {at(lb{IP: "100.64.0.9"}), ""},
		"loopback":                {at(lb{IP: "127.0.0.1"}), ""},
		"documentation":           {at(lb{IP: "192.0.2.1"}), ""},
		"a name of the machine":   {at(lb{Hostname: "localhost"}), ""},
		"an allowed network":      {at(lb{IP: "10.20.0.1"}), "10.20.0.1"},
		"with the port":           {at(lb{IP: "93.184.216.34", Ports: https}), "93.184.216.34"},
		"without the port":        {at(lb{IP: "93.184.216.34", Ports: http}), ""},
	} {
		assert.Equal(t, c.want, endpointOf(c.in, []netip.Prefix{netip.MustParsePrefix("10.20.0.0/16")}), name)
	}
}

func TestEndpoint_OnePerHost(t *testing.T) {
	routes := []Route{
		{Host: "same", Path: "/", TLS: true, Endpoint: "1.1.1.1"}, {Host: "same", Path: "/a", TLS: true, Endpoint: "1.1.1.1"},
		{Host: "two", Path: "/", TLS: true, Endpoint: "1.1.1.1"}, {Host: "two", Path: "/a", TLS: true, Endpoint: "8.8.8.8"},
		{Host: "half", Path: "/", TLS: true, Endpoint: "1.1.1.1"}, {Host: "half", Path: "/a", TLS: true}, {Host: "half", Path: "/b", TLS: true, Endpoint: "1.1.1.1"},
		{Host: "plain", Path: "/", Endpoint: "1.1.1.1"}, {Host: "*.wild", Path: "/", TLS: true, Endpoint: "1.1.1.1"},
	}
	settleEndpoints(routes)
	for _, r := range routes {
		if r.Host == "same" {
			assert.Equal(t, "1.1.1.1", r.Endpoint)
		} else {
			assert.Empty(t, r.Endpoint, r.Host+r.Path)
		}
	}
}
