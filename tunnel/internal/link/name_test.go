package link

import (
	"strings"
	"testing"
)

// Looks for agents and instances that share a name on the wire.
func TestNames_Unique(t *testing.T) {
	runs, proxies := map[string]string{}, map[string]string{}
	for _, agentID := range []string{"a", "a.b", "a.agent", "a.agent-x", "a\x00b", "agent"} {
		for _, instance := range []string{"", "b", "b.c", "agent", "pod-1", "Pod-1"} {
			if !ValidInstance(instance) {
				t.Errorf("instance %q", instance)
			}
			who := agentID + " / " + instance
			run, proxy := RunID(agentID, instance), ProxyName(agentID, instance)
			if runs[run] != "" || proxies[proxy] != "" {
				t.Errorf("%q has the names of %q%q", who, runs[run], proxies[proxy])
			}
			if !strings.HasPrefix(proxy, agentID+".") {
				t.Errorf("%q is called %q, which frpc cannot send", who, proxy)
			}
			runs[run], proxies[proxy] = who, who
		}
	}
}

func TestValidInstance_RefusesInvalid(t *testing.T) {
	for _, name := range []string{"a\x00b", "a b", "-a", "a.", "ä", "a/b", strings.Repeat("a", 254)} {
		if ValidInstance(name) {
			t.Errorf("%q is allowed", name)
		}
	}
}
