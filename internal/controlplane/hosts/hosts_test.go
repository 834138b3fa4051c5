package hosts_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/hosts"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

const domain = "apps.example.com"

var noon = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

func TestOwner(t *testing.T) {
	claim := func(agent, proof string, since time.Duration, lost ...time.Duration) store.HostClaim {
		c := store.HostClaim{AgentID: agent, Host: "h", Proof: proof, ProvenAt: noon.Add(since)}
		for _, ago := range lost {
			c.LostAt = noon.Add(-ago)
		}
		return c
	}
	for name, c := range map[string]struct {
		claims []store.HostClaim
		want   string
	}{
		"none":                                {nil, ""},
		"a claim without a proof":             {[]store.HostClaim{claim("a", "", 0)}, ""},
		"the one that is proven":              {[]store.HostClaim{claim("a", "", 0), claim("b", hosts.TXT, 1)}, "b"},
		"a CNAME before a TXT":                {[]store.HostClaim{claim("a", hosts.TXT, 0), claim("b", hosts.CNAME, 1)}, "b"},
		"the operator before all":             {[]store.HostClaim{claim("a", hosts.CNAME, 0), claim("b", hosts.Grant, 1)}, "b"},
		"of equal proofs the older":           {[]store.HostClaim{claim("a", hosts.TXT, 1), claim("b", hosts.TXT, 0)}, "b"},
		"lost for less than a day":            {[]store.HostClaim{claim("a", hosts.CNAME, 0, 23*time.Hour)}, "a"},
		"lost for a day":                      {[]store.HostClaim{claim("a", hosts.CNAME, 0, 24*time.Hour)}, ""},
		"a proof that is there before a lost": {[]store.HostClaim{claim("a", hosts.CNAME, 0, time.Hour), claim("b", hosts.TXT, 1)}, "b"},
	} {
		t.Run(name, func(t *testing.T) {
			owner, ok := hosts.Owner(c.claims, noon)
			assert.Equal(t, c.want != "", ok)
			assert.Equal(t, c.want, owner.AgentID)
		})
	}
}

// TestGivenHost_OneApp: no two Apps have one host, in whatever way their names join.
func TestGivenHost_OneApp(t *testing.T) {
	host := controlapi.GivenHost("web", "prod", "A1", domain)
	assert.Regexp(t, `^web-[a-z2-7]{16}\.apps\.example\.com$`, host)
	assert.Equal(t, host, controlapi.GivenHost("web", "prod", "a1", domain), "an ID has no case")
	long := strings.Repeat("a", 60)
	seen := map[string]bool{}
	for _, app := range [][3]string{
		{"web", "prod", "a1"}, {"web", "prod", "a2"}, {"web", "prod-x", "a1"}, {"web-prod", "x", "a1"}, {"web-x", "prod", "a1"}, {"web", "x-prod", "a1"},
		{"a.b", "prod", "a1"}, {"a-b", "prod", "a1"}, {long, "prod", "a1"}, {long + "a", "prod", "a1"}, {long, "prod", "a2"},
	} {
		host := controlapi.GivenHost(app[0], app[1], app[2], domain)
		assert.False(t, seen[host], host)
		seen[host] = true
		label, rest, _ := strings.Cut(host, ".")
		assert.LessOrEqual(t, len(label), 63)
		assert.Equal(t, domain, rest)
	}
	assert.Regexp(t, `^a{46}-[a-z2-7]{16}\.`, controlapi.GivenHost(long, "prod", "a1", domain))
}

func TestClaim(t *testing.T) {
	shop := store.Agent{ID: "A1", Name: "shop"}
	route := func(host, namespace, app string) store.Route {
		return store.Route{Host: host, Namespace: namespace, App: app, Service: app}
	}
	given := controlapi.GivenHost("web", "prod", "A1", domain)
	others := controlapi.GivenHost("web", "prod", "A2", domain)
	taken := []store.HostClaim{{AgentID: "A2", Host: given, Proof: hosts.Given, ProvenAt: noon}}
	for name, c := range map[string]struct {
		host   string
		route  store.Route
		others []store.HostClaim
		proof  string
		reason string
	}{
		"its own below the domain":      {given, route(given, "prod", "web"), nil, hosts.Given, ""},
		"another App's of the same":     {given, route(given, "prod", "api"), nil, "", "not this App's"},
		"another namespace's":           {given, route(given, "test", "web"), nil, "", "not this App's"},
		"another agent's":               {others, route(others, "prod", "web"), nil, "", "not this App's"},
		"an agent's proof target":       {"a2." + domain, route("a2."+domain, "prod", "web"), nil, "", "not this App's"},
		"the domain itself":             {domain, route(domain, "prod", "web"), nil, "", "not this App's"},
		"a wildcard below the domain":   {"*." + domain, route("*."+domain, "prod", "web"), nil, "", "not this App's"},
		"a name that two agents can be": {given, route(given, "prod", "web"), taken, "", "another agent has the same host"},
		"its own host":                  {"www.example.org", route("www.example.org", "prod", "web"), nil, "", "CNAME www.example.org to a1." + domain},
		"its own wildcard":              {"*.example.org", route("*.example.org", "prod", "web"), nil, "", `TXT _pipeops.example.org to "pipeops-agent=a1"`},
	} {
		t.Run(name, func(t *testing.T) {
			got := hosts.Claim(shop, c.host, []store.Route{c.route}, domain, c.others, noon)
			assert.Equal(t, c.proof, got.Proof)
			assert.Contains(t, got.Reason, c.reason)
			status := hosts.Status("A1", c.host, append(c.others, got), noon)
			assert.Equal(t, c.proof != "", status.Served)
			assert.Equal(t, c.proof == "", status.Reason != "", "who is not served is told why")
		})
	}

	had := hosts.Claim(shop, given, []store.Route{route(given, "prod", "web")}, domain, nil, noon)
	later := noon.Add(time.Hour)
	same := hosts.Renew(had, shop, []store.Route{route(given, "prod", "web")}, domain, []store.HostClaim{had}, later)
	assert.Equal(t, noon, same.ProvenAt)
	named := []store.Route{route(given, "prod", "web"), route(given, "test", "web")}
	same = hosts.Renew(had, shop, named, domain, []store.HostClaim{had}, later)
	assert.Equal(t, hosts.Given, same.Proof, "another App that names the host takes it from no one")
	gone := hosts.Renew(had, shop, named[1:], domain, []store.HostClaim{had}, later)
	assert.Empty(t, gone.Proof)
	require.Equal(t, noon, gone.ClaimedAt)
}
