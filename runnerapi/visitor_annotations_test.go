package runnerapi_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func TestReadRouteAnnotations_Visitors(t *testing.T) {
	const nginx = "nginx.ingress.kubernetes.io/"
	for name, test := range map[string]struct {
		annotations map[string]string
		want        *runnerapi.Visitors
		unmet       string
	}{
		"none":        {map[string]string{nginx + "proxy-read-timeout": "60", nginx + "whitelist-source-range": " "}, nil, ""},
		"networks":    {map[string]string{nginx + "whitelist-source-range": "203.0.113.7/24, 192.0.2.1"}, &runnerapi.Visitors{AllowFrom: []string{"203.0.113.0/24", "192.0.2.1/32"}}, ""},
		"newer name":  {map[string]string{nginx + "allowlist-source-range": "2001:db8::/32"}, &runnerapi.Visitors{AllowFrom: []string{"2001:db8::/32"}}, ""},
		"a bad one":   {map[string]string{nginx + "whitelist-source-range": "203.0.113.0/24,office"}, nil, `"office" is neither a network nor an address`},
		"basic":       {map[string]string{nginx + "auth-type": "basic", nginx + "auth-secret": "web", nginx + "auth-realm": "x"}, &runnerapi.Visitors{BasicAuthSecret: "web"}, ""},
		"F5":          {map[string]string{"nginx.org/basic-auth-secret": "web"}, &runnerapi.Visitors{BasicAuthSecret: "web"}, ""},
		"no secret":   {map[string]string{nginx + "auth-type": "basic"}, nil, "name a Secret of the namespace"},
		"elsewhere":   {map[string]string{nginx + "auth-type": "basic", nginx + "auth-secret": "other/web"}, nil, "name a Secret of the namespace"},
		"digest":      {map[string]string{nginx + "auth-type": "digest", nginx + "auth-secret": "web"}, nil, "but basic"},
		"a map":       {map[string]string{nginx + "auth-type": "basic", nginx + "auth-secret": "web", nginx + "auth-secret-type": "auth-map"}, nil, "but auth-file"},
		"asks others": {map[string]string{nginx + "auth-url": "https://sso.example.com", nginx + "whitelist-source-range": "192.0.2.1"}, nil, "auth-url"},
		"Traefik":     {map[string]string{"traefik.ingress.kubernetes.io/router.middlewares": "default-auth@kubernetescrd"}, nil, "router.middlewares"},
	} {
		got := runnerapi.ReadRouteAnnotations(test.annotations)
		assert.Equal(t, test.want, got.Visitors, name)
		if test.unmet == "" {
			assert.Empty(t, got.Unmet, name)
		} else {
			assert.Contains(t, got.Unmet, test.unmet, name)
		}
	}
}

func TestVisitors_Protects(t *testing.T) {
	for name, test := range map[string]struct {
		v    *runnerapi.Visitors
		want bool
	}{
		"none":              {nil, false},
		"only a pace":       {&runnerapi.Visitors{RequestsPerSecond: 1, MaxBodyBytes: 1}, false},
		"a password":        {&runnerapi.Visitors{BasicAuthSecret: "s"}, true},
		"an office":         {&runnerapi.Visitors{AllowFrom: []string{"203.0.113.0/24", "2001:db8::/32"}}, true},
		"everyone":          {&runnerapi.Visitors{AllowFrom: []string{"203.0.113.0/24", "0.0.0.0/0"}}, false},
		"halves":            {&runnerapi.Visitors{AllowFrom: []string{"0.0.0.0/1", "128.0.0.0/1"}}, false},
		"all of IPv6":       {&runnerapi.Visitors{AllowFrom: []string{"::/0"}}, false},
		"all, and password": {&runnerapi.Visitors{AllowFrom: []string{"::/0"}, BasicAuthSecret: "s"}, true},
	} {
		assert.Equal(t, test.want, (&runnerapi.Ingress{Public: true, Visitors: test.v}).Protects(), name)
	}
}

func TestIngress_ProtectsPorts(t *testing.T) {
	office, everywhere := []string{"203.0.113.0/24"}, []string{"0.0.0.0/0"}
	port := func(from ...string) []runnerapi.IngressPort {
		return []runnerapi.IngressPort{{Port: 5432, AllowFrom: from}}
	}
	for name, c := range map[string]struct {
		of       runnerapi.Ingress
		protects bool
	}{
		"a port with networks":              {runnerapi.Ingress{Ports: port(office...)}, true},
		"a port with all networks":          {runnerapi.Ingress{Ports: port(everywhere...)}, false},
		"a port with those of visitors":     {runnerapi.Ingress{Ports: port(), Visitors: &runnerapi.Visitors{AllowFrom: office}}, true},
		"a port for everyone":               {runnerapi.Ingress{Ports: port()}, false},
		"a password is for hosts alone":     {runnerapi.Ingress{Ports: port(), Visitors: &runnerapi.Visitors{BasicAuthSecret: "users"}}, false},
		"a port's networks are no host's":   {runnerapi.Ingress{Public: true, Ports: port(office...)}, false},
		"a host with a password and a port": {runnerapi.Ingress{Public: true, Ports: port(office...), Visitors: &runnerapi.Visitors{BasicAuthSecret: "users"}}, true},
	} {
		assert.Equal(t, c.protects, c.of.Protects(), name)
	}
	var none *runnerapi.Ingress
	assert.False(t, none.Protects())
}
