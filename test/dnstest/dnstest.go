// Package dnstest is a DNS server for tests, with the records that a test sets. It speaks the real
// protocol, over UDP and TCP.
package dnstest

import (
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/require"
)

// Server answers for all names.
type Server struct {
	// Address is its host:port.
	Address string

	mu      sync.Mutex
	records map[string][]dns.RR
	broken  bool
}

// Start runs a server until the test ends.
func Start(t testing.TB) *Server {
	t.Helper()
	packets, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	require.NoError(t, err)
	streams, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", packets.LocalAddr().String())
	require.NoError(t, err)
	s := &Server{Address: packets.LocalAddr().String(), records: map[string][]dns.RR{}}
	for _, srv := range []*dns.Server{{PacketConn: packets, Handler: s}, {Listener: streams, Handler: s}} {
		started, done := make(chan struct{}), make(chan error, 1)
		srv.NotifyStartedFunc = func() { close(started) }
		go func() { done <- srv.ActivateAndServe() }()
		<-started
		t.Cleanup(func() {
			require.NoError(t, srv.Shutdown())
			require.NoError(t, <-done)
		})
	}
	return s
}

// Set replaces the records of a name by those, in the form of a zone file without the name.
func (s *Server) Set(t testing.TB, name string, records ...string) {
	t.Helper()
	name = dns.Fqdn(name)
	parsed := make([]dns.RR, 0, len(records))
	for _, text := range records {
		rr, err := dns.NewRR(name + " 60 IN " + text)
		require.NoError(t, err)
		parsed = append(parsed, rr)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records[name] = parsed
}

// Break makes the server fail, or answer again.
func (s *Server) Break(broken bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = broken
}

// ServeDNS implements dns.Handler.
func (s *Server) ServeDNS(w dns.ResponseWriter, question *dns.Msg) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := new(dns.Msg).SetReply(question)
	if len(question.Question) != 1 || s.broken {
		answer.Rcode = dns.RcodeServerFailure
		_ = w.WriteMsg(answer)
		return
	}
	q := question.Question[0]
	records, known := s.records[strings.ToLower(q.Name)]
	if !known {
		answer.Rcode = dns.RcodeNameError
	}
	for _, rr := range records {
		if kind := rr.Header().Rrtype; kind == q.Qtype || kind == dns.TypeCNAME {
			answer.Answer = append(answer.Answer, rr)
		}
	}
	if w.RemoteAddr().Network() == "udp" {
		answer.Truncate(dns.MinMsgSize)
	}
	_ = w.WriteMsg(answer)
}
