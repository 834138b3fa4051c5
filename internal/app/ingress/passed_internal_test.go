package ingress

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// A host is carried in one way, and the oldest route says in which.
func TestOneWay(t *testing.T) {
	const host = "db.example.com"
	at := func(app, protocol string, port int32, age time.Duration) Route {
		return Route{
			App: runnerapi.Key{Namespace: "shop", Name: app}, Host: host, Path: "/", Protocol: protocol, Service: app, Port: port, Ready: true,
			Created: time.Unix(1e9, 0).Add(-age),
		}
	}
	young, old := time.Duration(0), time.Hour
	for name, c := range map[string]struct {
		routes  []Route
		refused []string // reasons
	}{
		"HTTP alone":            {[]Route{at("a", "", 80, old), at("b", "", 81, young)}, []string{"", ""}},
		"passed alone":          {[]Route{at("a", gatewaywire.TLS, 443, old)}, []string{""}},
		"HTTP is older":         {[]Route{at("a", gatewaywire.TLS, 443, young), at("b", "", 80, old), at("c", "", 80, young)}, []string{notPassed, "", ""}},
		"passed is older":       {[]Route{at("a", "", 80, young), at("b", gatewaywire.TLS, 443, old)}, []string{passedElsewhere, ""}},
		"of one age":            {[]Route{at("a", gatewaywire.TLS, 443, old), at("b", "", 80, old)}, []string{notPassed, ""}},
		"two Apps":              {[]Route{at("a", gatewaywire.TLS, 443, young), at("b", gatewaywire.TLS, 443, old)}, []string{passedElsewhere, ""}},
		"two ports":             {[]Route{at("a", gatewaywire.TLS, 443, old), at("a", gatewaywire.TLS, 444, old)}, []string{"", passedElsewhere}},
		"a public port beside":  {[]Route{at("a", gatewaywire.TCP, 443, old), at("b", gatewaywire.TLS, 443, young)}, []string{"", ""}},
		"a refused one is none": {[]Route{{Host: host, Refused: true, Reason: "x"}, at("b", gatewaywire.TLS, 443, young)}, []string{"x", ""}},
	} {
		var got []string
		for i, r := range oneWay(c.routes) {
			got = append(got, r.Reason)
			assert.Equal(t, c.refused[i] != "", r.Refused, name)
			assert.Equal(t, c.refused[i] != "", r.Port == 0, name)
		}
		assert.Equal(t, c.refused, got, name)
	}
}
