package server

import (
	"bytes"
	"testing"

	"github.com/fatedier/frp/pkg/msg"

	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/link"
)

// FuzzGuard feeds an agent's bytes to everything that decides about them. Whatever they
// are, frps may see nothing but a bare ping or the agent's own proxy.
func FuzzGuard(f *testing.F) {
	const agentID = "a1"
	r := replica{agentID: agentID}
	pod := replica{agentID, "pod-1"}
	for _, m := range []msg.Message{
		&msg.Login{User: agentID, RunID: link.RunID(agentID, "")},
		&msg.Login{User: agentID, ClientID: pod.instance, RunID: pod.runID()},
		&msg.Login{User: agentID, ClientID: "a\x00b"},
		&msg.Ping{PrivilegeKey: "x"},
		&msg.NewWorkConn{RunID: link.RunID(agentID, "")},
		&msg.NewProxy{ProxyName: link.ProxyName(agentID, ""), ProxyType: "stcp", AllowUsers: []string{"*"}, Sk: "known", RemotePort: 22},
		&msg.NewProxy{ProxyName: link.ProxyName("a2", ""), ProxyType: "stcp"},
		&msg.NewVisitorConn{ProxyName: link.ProxyName("a2", "")},
	} {
		var b bytes.Buffer
		if err := msg.WriteMsg(&b, m); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	f.Add([]byte("p\x00\x00\x00\x00\x00\x00\x00\x04null"))
	f.Add([]byte("o\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := msg.ReadMsg(bytes.NewReader(data))
		if err != nil {
			return
		}
		if login, ok := m.(*msg.Login); ok {
			said := replica{agentID, login.ClientID}
			if admitLogin(said, login) == nil {
				own := ownLogin(said, login)
				if own.User != agentID || own.RunID != link.RunID(agentID, login.ClientID) || own.PoolCount != 0 || own.ClientID != "" {
					t.Fatalf("login %+v", own)
				}
			}
		}
		if work, ok := m.(*msg.NewWorkConn); ok && admitWorkConn(r, work) == nil && work.RunID != link.RunID(agentID, "") {
			t.Fatalf("work connection %+v", work)
		}
		admitted, err := admitControl(r, m)
		if err != nil {
			return
		}
		switch m := admitted.(type) {
		case *msg.Ping:
		case *msg.NewProxy:
			if m.ProxyName != link.ProxyName(agentID, "") || m.ProxyType != "stcp" || m.RemotePort != 0 ||
				len(m.AllowUsers) != 0 || len(m.Sk) < 20 {
				t.Fatalf("proxy %+v", m)
			}
		default:
			t.Fatalf("admitted %T", admitted)
		}
	})
}
