package link

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Looks for agents and instances that share a name on the wire.
func TestNames_Unique(t *testing.T) {
	runs, proxies := map[string]string{}, map[string]string{}
	for _, agentID := range []string{"a", "a.b", "a.agent", "a.agent-x", "a\x00b", "agent"} {
		for _, instance := range []string{"", "b", "b.c", "agent", "pod-1", "Pod-1"} {
			assert.True(t, ValidInstance(instance), "instance %q", instance)
			who := agentID + " / " + instance
			run, proxy := RunID(agentID, instance), ProxyName(agentID, instance)
			assert.True(t, runs[run] == "" && proxies[proxy] == "", "%q has the names of %q%q", who, runs[run], proxies[proxy])
			assert.True(t, strings.HasPrefix(proxy, agentID+"."), "%q is called %q, which frpc cannot send", who, proxy)
			runs[run], proxies[proxy] = who, who
		}
	}
}

func TestValidInstance_RefusesInvalid(t *testing.T) {
	for _, name := range []string{"a\x00b", "a b", "-a", "a.", "ä", "a/b", strings.Repeat("a", 254)} {
		assert.False(t, ValidInstance(name), "%q is allowed", name)
	}
}
