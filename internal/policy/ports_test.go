package policy

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func TestPortRanges(t *testing.T) {
	var p PortRanges
	require.NoError(t, json.Unmarshal([]byte(`[5432, "20000-20099"]`), &p))
	for port, allowed := range map[int32]bool{5432: true, 20000: true, 20099: true, 5433: false, 0: false, 20100: false} {
		assert.Equal(t, allowed, p.has(port, "TCP"), "%d", port)
		assert.Equal(t, allowed, p.has(port, "UDP"), "%d", port)
	}
	assert.True(t, PortRanges{"*"}.has(0, "TCP"), "one that the control plane chooses")
	for _, one := range []PortRanges{{"53/udp"}, {"50-60/udp"}, {"*/udp"}} {
		assert.True(t, one.has(53, "UDP"), "%s", one)
		assert.False(t, one.has(53, "TCP"), "%s", one)
	}
	for _, none := range []string{"53/sctp", "53/", "/udp", "53/UDP"} {
		_, _, _, ok := bounds(none)
		assert.False(t, ok, none)
	}
	require.Error(t, json.Unmarshal([]byte(`[true]`), &p))
	require.Error(t, json.Unmarshal([]byte(`"5432"`), &p))
}

func TestPort(t *testing.T) {
	no, yes := false, true
	for name, c := range map[string]struct {
		rule    Rule
		port    int32
		refused string
	}{
		"no bound":                  {Rule{}, 5432, ""},
		"public is off":             {Rule{Public: &no, PublicPorts: PortRanges{"*"}}, 5432, "public"},
		"named":                     {Rule{Public: &yes, Hosts: []string{"a.example.com"}, PublicPorts: PortRanges{"5432"}}, 5432, ""},
		"another":                   {Rule{PublicPorts: PortRanges{"5432"}}, 22, "allows the public ports 5432, not the public port 22 of TCP"},
		"none":                      {Rule{PublicPorts: PortRanges{}}, 5432, "allows the public ports (none)"},
		"chosen, within bounds":     {Rule{PublicPorts: PortRanges{"20000-20099"}}, 0, "not a public port of TCP that the control plane chooses"},
		"chosen":                    {Rule{PublicPorts: PortRanges{"*"}}, 0, ""},
		"hosts are bounded":         {Rule{Hosts: []string{"a.example.com"}}, 5432, "hosts"},
		"hosts are bounded by star": {Rule{Hosts: []string{"*"}}, 5432, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := ruling{Rule: c.rule}.port(runnerapi.PortIntent{Field: "ingress.ports[0]", Port: c.port, Protocol: "TCP"})
			if c.refused == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.refused)
		})
	}
}

func FuzzPortRanges(f *testing.F) {
	f.Add(`[5432, "20000-20099", "*"]`)
	f.Add(`[-1, "9-1", 70000, "53/udp", "*/tcp/udp"]`)
	f.Fuzz(func(t *testing.T, text string) {
		var p PortRanges
		if json.Unmarshal([]byte(text), &p) != nil {
			return
		}
		for _, r := range p {
			if first, last, _, ok := bounds(r); ok && (first < 0 || last < first || last >= 1<<16) {
				t.Fatalf("%q is %d to %d", r, first, last)
			}
		}
	})
}
