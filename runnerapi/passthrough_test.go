package runnerapi_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func TestPassthrough_Rules(t *testing.T) {
	const name = "db.example.com"
	passed := runnerapi.IngressHost{Host: name, Passthrough: true}
	for wants, in := range map[string]runnerapi.Ingress{
		"":             {Hosts: []runnerapi.IngressHost{passed, {Host: "www.example.com", Path: "/a"}}, Visitors: &runnerapi.Visitors{AllowFrom: []string{"192.0.2.0/24"}, RequestsPerSecond: 5}},
		"no path":      {Hosts: []runnerapi.IngressHost{{Host: name, Path: "/a", Passthrough: true}}},
		"no tlsSecret": {Hosts: []runnerapi.IngressHost{{Host: name, TLSSecret: "cert", Passthrough: true}}},
		"second entry": {Hosts: []runnerapi.IngressHost{passed, {Host: name, Path: "/a"}}},
		"signIn":       {Hosts: []runnerapi.IngressHost{passed}, Visitors: &runnerapi.Visitors{SignIn: &runnerapi.SignIn{Emails: []string{"*"}}}},
		"basicAuth":    {Hosts: []runnerapi.IngressHost{passed}, Visitors: &runnerapi.Visitors{BasicAuthSecret: "users"}},
		"maxBodyBytes": {Hosts: []runnerapi.IngressHost{passed}, Visitors: &runnerapi.Visitors{MaxBodyBytes: 1}},
	} {
		spec := runnerapi.AppSpec{Image: "x", Ports: []runnerapi.Port{{Port: 5432}}, Ingress: &in}
		wrong := fmt.Sprint(spec.Validate())
		if wants == "" {
			require.Equal(t, "[]", wrong)
			continue
		}
		require.Contains(t, wrong, wants)
	}
}

// Networks alone keep visitors out of a host whose TLS the App ends.
func TestPassthrough_Protects(t *testing.T) {
	in := runnerapi.Ingress{Hosts: []runnerapi.IngressHost{{Host: "db.example.com", Passthrough: true}}, Visitors: &runnerapi.Visitors{BasicAuthSecret: "users"}}
	require.False(t, in.Protects())
	in.Visitors = &runnerapi.Visitors{AllowFrom: []string{"192.0.2.0/24"}}
	require.True(t, in.Protects())
	require.True(t, in.GatewayAlone())
	in.Visitors = &runnerapi.Visitors{SignIn: &runnerapi.SignIn{Emails: []string{"*@example.com"}}}
	require.False(t, in.SignsIn())
}
