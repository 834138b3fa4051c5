package ports_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ports"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
)

func at(second int) time.Time { return time.Unix(int64(second), 0) }

func claim(agent, namespace, app string, wanted, second int) store.PortClaim {
	return store.PortClaim{AgentID: agent, Namespace: namespace, App: app, Protocol: "TCP", Port: 5432, Wanted: wanted, ClaimedAt: at(second)}
}

func open(t *testing.T, text string) ports.Set {
	t.Helper()
	s, err := ports.ParseSet(text)
	require.NoError(t, err)
	return s
}

func TestParseSet(t *testing.T) {
	for text, want := range map[string]string{"": "", "5432": "5432", "20000-20002,5432": "5432,20000-20002", "1-2, 2-3": "1-3", "65535": "65535"} {
		assert.Equal(t, want, open(t, text).String(), text)
	}
	for _, text := range []string{"0", "65536", "a", "5-4", "-1", "1-", "1-65535", "1-9000,9001-20000", "1.5"} {
		_, err := ports.ParseSet(text)
		require.Error(t, err, text)
	}
}

func FuzzParseSet(f *testing.F) {
	f.Add("20000-20099,5432")
	f.Add("1-2,,")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ports.ParseSet(text)
		if err != nil {
			return
		}
		again, err := ports.ParseSet(s.String())
		require.NoError(t, err)
		require.Equal(t, s, again)
		for _, n := range s {
			require.True(t, 0 < n && n < 1<<16)
		}
	})
}

func TestSettle(t *testing.T) {
	range10 := ports.Open{TCP: open(t, "20000-20009")}
	for name, c := range map[string]struct {
		open   ports.Open
		claims []store.PortClaim
		served []bool
		reason string // of the last one
	}{
		"nothing is open": {ports.Open{}, []store.PortClaim{claim("a", "n", "x", 20000, 1)}, []bool{false}, "--gateway-tcp-ports"},
		"within":          {range10, []store.PortClaim{claim("a", "n", "x", 20000, 1)}, []bool{true}, ""},
		"outside":         {range10, []store.PortClaim{claim("a", "n", "x", 22, 1)}, []bool{false}, "has not opened port 22 of TCP; leave publicPort out, or name one of 20000-20009"},
		"none chosen yet": {range10, []store.PortClaim{claim("a", "n", "x", 0, 1)}, []bool{false}, "no TCP port of the gateway is free"},
		"the older keeps it": {range10, []store.PortClaim{claim("b", "n", "secret-app", 20000, 1), claim("a", "n", "x", 20000, 2)},
			[]bool{true, false}, "in use by another App"},
	} {
		t.Run(name, func(t *testing.T) {
			rulings := ports.Settle(c.claims, c.open)
			require.Len(t, rulings, len(c.claims))
			for i, r := range rulings {
				assert.Equal(t, c.served[i], r.Served, r.App)
			}
			last := rulings[len(rulings)-1]
			assert.Contains(t, last.Reason, c.reason)
			assert.NotContains(t, last.Reason, "secret-app", "others' Apps are not named")
		})
	}
	held := ports.Settle([]store.PortClaim{claim("b", "n", "y", 20000, 1), claim("a", "n", "x", 20000, 2)}, range10)[1]
	require.NotNil(t, held.Holder)
	assert.Equal(t, "y", held.Holder.App, "the operator sees who")
}

// TestSettle_Protocols: a number of TCP and the same of UDP are two ports, each of which one App
// has.
func TestSettle_Protocols(t *testing.T) {
	both := ports.Open{TCP: open(t, "53"), UDP: open(t, "53,5353")}
	tcp, udp, chosen := claim("a", "n", "x", 53, 1), claim("b", "n", "y", 53, 2), claim("b", "n", "z", 0, 3)
	udp.Protocol, chosen.Protocol = gatewaywire.UDP, gatewaywire.UDP
	rulings := ports.Settle([]store.PortClaim{tcp, udp}, both)
	assert.True(t, rulings[0].Served)
	assert.True(t, rulings[1].Served, rulings[1].Reason)
	changed := ports.Choose([]store.PortClaim{tcp, udp, chosen}, "b", both)
	require.Len(t, changed, 1)
	assert.Equal(t, 5353, changed[0].Chosen)
	none := ports.Settle([]store.PortClaim{udp}, ports.Open{TCP: both.TCP})[0]
	assert.Contains(t, none.Reason, "no UDP ports of the gateway; have the operator set --gateway-udp-ports")
}

// An agent that names all ports leaves some to others, and so does a namespace of it.
func TestSettle_Shares(t *testing.T) {
	set := ports.Open{TCP: open(t, "20000-20029")}
	served := func(claims []store.PortClaim, agent string) (n int) {
		for _, r := range ports.Settle(claims, set) {
			if r.Served && r.AgentID == agent {
				n++
			}
		}
		return n
	}
	var greedy []store.PortClaim
	for i := range 30 {
		greedy = append(greedy, claim("a", "n", "x"+strconv.Itoa(i), 20000+i, i+1))
	}
	assert.Equal(t, 20, served(greedy, "a"), "at most twice as many as are free")
	later := append(slices.Clone(greedy), claim("b", "n", "y", 20025, 100))
	assert.Equal(t, 1, served(later, "b"))
	assert.Equal(t, 20, served(later, "a"), "a younger claim changes nothing about older ones")
}

func TestChoose(t *testing.T) {
	set := ports.Open{TCP: open(t, "20000-20003")}
	claims := []store.PortClaim{claim("a", "n", "x", 0, 1), claim("b", "n", "y", 20000, 2), claim("b", "n", "z", 0, 3)}
	changed := ports.Choose(claims, "a", set)
	require.Len(t, changed, 1)
	assert.Equal(t, 20003, changed[0].Chosen, "one that no App names")
	claims[0] = changed[0]
	assert.Empty(t, ports.Choose(claims, "a", set), "it stays")
	changed = ports.Choose(claims, "b", set)
	require.Len(t, changed, 1)
	assert.Equal(t, 20002, changed[0].Chosen)

	changed = ports.Choose(claims, "a", ports.Open{TCP: open(t, "30000")})
	require.Len(t, changed, 1)
	assert.Equal(t, 30000, changed[0].Chosen, "the operator has closed the one before")
	assert.Empty(t, ports.Choose(claims, "a", ports.Open{})[0].Chosen)
}

// Apps that name ports without getting them keep none from others.
func TestChoose_NamedInVain(t *testing.T) {
	set := ports.Open{TCP: open(t, "20000-20002")}
	var claims []store.PortClaim
	for i := range 3 {
		claims = append(claims, claim("a", "n", "x"+strconv.Itoa(i), 20000+i, 1))
	}
	claims = append(claims, claim("b", "n", "y", 0, 2))
	changed := ports.Choose(claims, "b", set)
	require.Len(t, changed, 1)
	claims[3] = changed[0]
	rulings := ports.Settle(claims, set)
	assert.True(t, rulings[3].Served, rulings[3].Reason)
}

func TestFollow(t *testing.T) {
	had := []store.PortClaim{claim("a", "n", "x", 0, 1), claim("a", "n", "y", 20000, 1), claim("a", "n", "gone", 0, 1)}
	had[0].Chosen = 20005
	now := ports.Follow(had, []store.PortClaim{claim("a", "n", "x", 0, 0), claim("a", "n", "y", 20001, 0), claim("a", "n", "new", 0, 0)}, at(9))
	require.Len(t, now, 3)
	assert.Equal(t, had[0], now[0], "it keeps its time and its port")
	assert.Equal(t, at(9), now[1].ClaimedAt, "another port is a new claim")
	assert.Equal(t, at(9), now[2].ClaimedAt)
}
