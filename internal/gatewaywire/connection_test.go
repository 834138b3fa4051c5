package gatewaywire_test

import (
	"bufio"
	"bytes"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
)

func TestConnection_RoundTrip(t *testing.T) {
	for visitor, protocol := range map[string]string{"203.0.113.7:40000": gatewaywire.TCP, "[2001:db8::7]:40000": gatewaywire.UDP} {
		want := gatewaywire.Connection{
			ID: "id", Protocol: protocol, Host: "db-1.apps.example.com", Port: 5432, Visitor: netip.MustParseAddrPort(visitor), At: netip.MustParseAddrPort("192.0.2.1:20000"),
		}
		var wire bytes.Buffer
		require.NoError(t, want.Request().Write(&wire))
		r, err := http.ReadRequest(bufio.NewReader(&wire))
		require.NoError(t, err)
		assert.Equal(t, http.MethodConnect, r.Method)
		got, err := gatewaywire.ReadConnection(r)
		require.NoError(t, err)
		assert.Equal(t, want, got)
		assert.Zero(t, wire.Len(), "what follows is the connection's")
	}
}

func FuzzReadConnection(f *testing.F) {
	f.Add("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\nPipeops-Port-Protocol: UDP\r\nPipeops-Visitor-Address: 192.0.2.1:1\r\nPipeops-Public-Port: 192.0.2.2:2\r\n\r\n")
	f.Add("CONNECT a:0 HTTP/1.1\r\nHost: a:0\r\n\r\n")
	f.Add("CONNECT [::1]:65536 HTTP/1.1\r\nHost: a\r\nPipeops-Port-Protocol: QUIC\r\nPipeops-Visitor-Address: x\r\n\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
		if err != nil {
			return
		}
		c, err := gatewaywire.ReadConnection(r)
		if err == nil && (c.Host == "" || c.Port < 1 || c.Port > 65535 || c.Protocol != gatewaywire.TCP && c.Protocol != gatewaywire.UDP || !c.Visitor.IsValid() || !c.At.IsValid()) {
			t.Fatalf("let through %+v", c)
		}
	})
}
