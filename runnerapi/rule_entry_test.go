package runnerapi_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// TestValidate_NamesEntry: a rule about a list names the entry that breaks it.
func TestValidate_NamesEntry(t *testing.T) {
	ports := []runnerapi.Port{{Port: 8080}}
	open := func(change func(*runnerapi.Ingress)) runnerapi.AppSpec {
		in := &runnerapi.Ingress{Public: true}
		change(in)
		return runnerapi.AppSpec{Image: "a", Ports: ports, Ingress: in}
	}
	for says, spec := range map[string]runnerapi.AppSpec{
		`ingress.visitors.allowFrom[1]: "300.1" is neither an IP address nor a network in CIDR form`: open(func(in *runnerapi.Ingress) {
			in.Visitors = &runnerapi.Visitors{AllowFrom: []string{"192.0.2.1", "300.1", "x"}}
		}),
		"ingress.ports[1]: an entry of allowFrom is neither an IP address nor a network in CIDR form": open(func(in *runnerapi.Ingress) {
			in.Ports = []runnerapi.IngressPort{{Port: 8080}, {Port: 8080, Protocol: "UDP", AllowFrom: []string{"x"}}}
		}),
		"ingress.hosts[2]: a host and path is there twice": open(func(in *runnerapi.Ingress) {
			in.Hosts = []runnerapi.IngressHost{{Host: "a.example.com"}, {Host: "b.example.com"}, {Host: "a.example.com", Path: "/"}}
		}),
		"ingress.hosts: an ingress needs a host, public or ports": open(func(in *runnerapi.Ingress) { in.Public = false }),
		"autoscaling.min: min is more than max":                   {Image: "a", Autoscaling: &runnerapi.Autoscaling{Min: 3, Max: 2}},
		"tolerations[1]: operator Exists takes no value, and operator Equal needs a key": {
			Image: "a", Tolerations: []runnerapi.Toleration{{Key: "a"}, {Operator: "Exists", Value: "b"}},
		},
	} {
		var all []string
		for _, e := range spec.Validate() {
			all = append(all, e.Field+": "+e.Message)
		}
		assert.Contains(t, all, says)
	}
}
