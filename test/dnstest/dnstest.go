// Package dnstest is a DNS server for tests, with the records that a test sets. It speaks the real
// protocol, over UDP and TCP.
package dnstest

import (
	"net"
	"slices"
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
	updates int
	asked   func(name string)
}

// Start runs a server until the test ends.
func Start(t testing.TB) *Server {
	t.Helper()
	return StartAt(t, "127.0.0.1")
}

// StartAt is like Start, at an address of this machine.
func StartAt(t testing.TB, host string) *Server {
	t.Helper()
	return start(t, host, nil)
}

// StartForUpdates is like Start for a server that also takes updates (RFC 2136) which are signed
// with a key.
func StartForUpdates(t testing.TB, keyName, secret string) *Server {
	t.Helper()
	return start(t, "127.0.0.1", map[string]string{dns.Fqdn(keyName): secret})
}

func start(t testing.TB, host string, keys map[string]string) *Server {
	t.Helper()
	packets, streams := listen(t, host)
	s := &Server{Address: packets.LocalAddr().String(), records: map[string][]dns.RR{}}
	for _, srv := range []*dns.Server{{PacketConn: packets, Handler: s}, {Listener: streams, Handler: s}} {
		started, done := make(chan struct{}), make(chan error, 1)
		srv.TsigSecret, srv.MsgAcceptFunc = keys, accept
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

// listen opens a port of UDP and of TCP that has the same number.
func listen(t testing.TB, host string) (net.PacketConn, net.Listener) {
	t.Helper()
	for range 20 { // another process may have the number in the one and not in the other
		packets, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", net.JoinHostPort(host, "0"))
		require.NoError(t, err)
		streams, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", packets.LocalAddr().String())
		if err == nil {
			return packets, streams
		}
		require.NoError(t, packets.Close())
	}
	t.Fatal("no port is free for both UDP and TCP")
	return nil, nil
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

// OnQuestion has a function called with the name that a question asks for, before the answer.
func (s *Server) OnQuestion(asked func(name string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = asked
}

// ServeDNS implements dns.Handler.
func (s *Server) ServeDNS(w dns.ResponseWriter, question *dns.Msg) {
	s.mu.Lock()
	asked := s.asked
	s.mu.Unlock()
	if asked != nil && len(question.Question) == 1 {
		asked(question.Question[0].Name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := new(dns.Msg).SetReply(question)
	if len(question.Question) != 1 || s.broken {
		answer.Rcode = dns.RcodeServerFailure
		_ = w.WriteMsg(answer)
		return
	}
	if question.Opcode == dns.OpcodeUpdate {
		s.update(w, question, answer)
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

// accept also takes updates, which have any number of records.
func accept(h dns.Header) dns.MsgAcceptAction {
	if opcode := int(h.Bits>>11) & 0xF; opcode == dns.OpcodeUpdate {
		return dns.MsgAccept
	}
	return dns.DefaultMsgAcceptFunc(h)
}

// update changes records if the request is signed with the key.
func (s *Server) update(w dns.ResponseWriter, request, answer *dns.Msg) {
	signed := request.IsTsig()
	if signed == nil || w.TsigStatus() != nil {
		answer.Rcode = dns.RcodeNotAuth
		_ = w.WriteMsg(answer)
		return
	}
	for _, rr := range request.Ns {
		h := rr.Header()
		name := strings.ToLower(h.Name)
		if h.Class == dns.ClassINET {
			s.records[name] = append(s.records[name], rr)
			s.updates++
			continue
		}
		h.Class = dns.ClassINET
		s.records[name] = slices.DeleteFunc(s.records[name], func(had dns.RR) bool { return dns.IsDuplicate(had, rr) })
		if len(s.records[name]) == 0 {
			delete(s.records, name)
		}
	}
	answer.SetTsig(signed.Hdr.Name, signed.Algorithm, signed.Fudge, int64(signed.TimeSigned))
	_ = w.WriteMsg(answer)
}

// Updates returns how many records were added by updates.
func (s *Server) Updates() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.updates
}

// Has reports whether a name has records.
func (s *Server) Has(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.records[dns.Fqdn(name)]) > 0
}
