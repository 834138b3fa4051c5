package direct

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/egress"
	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
)

// unsentError is a failure to connect: nothing of the request was sent.
type unsentError struct{ error }

func (e unsentError) Unwrap() error { return e.error }

// unreachableError means that an endpoint does not answer for any host.
type unreachableError struct{ error }

func (e unreachableError) Unwrap() error { return e.error }

var (
	errGateway = errors.New("the endpoint is a gateway")
	errKey     = errors.New("the endpoint presents another key than the agent's cluster does")
)

// prove connects to the endpoint for a host. It asks the agent for the key if none is known, or if
// the endpoint presents another: the cluster may have a new certificate.
func (t *target) prove(ctx context.Context, h *host) error {
	if h.key.Load() == nil {
		if err := t.ask(ctx, h); err != nil {
			return err
		}
		return t.try(ctx, h)
	}
	err := t.try(ctx, h)
	if !errors.Is(err, errKey) {
		return err
	}
	if err := t.ask(ctx, h); err != nil {
		return err
	}
	return t.try(ctx, h)
}

func (t *target) try(ctx context.Context, h *host) error {
	conn, err := t.connect(ctx, h.Name, "http/1.1")
	if err == nil {
		_ = conn.Close()
	}
	return err
}

// askTimeout bounds a question to an agent.
const askTimeout = 5 * time.Second

// ask asks the agent for a host's key.
func (t *target) ask(ctx context.Context, h *host) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	key, err := t.p.cfg.Key(ctx, h.AgentID, h.Name)
	if err == nil {
		h.key.Store(&key)
	}
	return err
}

// connect returns a connection to the endpoint that has presented the host's key.
func (t *target) connect(ctx context.Context, name string, protocol string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, t.p.cfg.Timing.Connect)
	defer cancel()
	h := t.host(name)
	if h == nil {
		return nil, unsentError{errors.New("the host is not at this endpoint any more")}
	}
	d := &net.Dialer{Control: t.p.control}
	raw, err := d.DialContext(ctx, "tcp", net.JoinHostPort(t.endpoint, strconv.Itoa(t.p.cfg.Port)))
	if err != nil {
		if refused, ok := errors.AsType[refusedError](err); ok {
			return nil, unsentError{refused}
		}
		return nil, unsentError{unreachableError{err}}
	}
	conn := tls.Client(raw, &tls.Config{
		ServerName: name, MinVersion: tls.VersionTLS12, NextProtos: []string{gatewaywire.ProtocolGateway, protocol},
		InsecureSkipVerify: true, //nolint:gosec // verify compares the key with that of the agent's cluster: a chain would prove less
		VerifyConnection:   h.verify,
	})
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		if silent(err) {
			err = unreachableError{err}
		}
		return nil, unsentError{err}
	}
	return conn, nil
}

// silent reports whether the other end of a handshake gave no answer in TLS.
func silent(err error) bool {
	var late net.Error
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, context.DeadlineExceeded) ||
		errors.As(err, &late) && late.Timeout()
}

// verify accepts the key that the agent's cluster presents for the host, and no other. A gateway is
// never an endpoint: requests would go round and round.
func (h *host) verify(state tls.ConnectionState) error {
	if state.NegotiatedProtocol == gatewaywire.ProtocolGateway {
		return errGateway
	}
	if key := h.key.Load(); key == nil || gatewaywire.KeyOf(leaf(state)) != *key {
		return errKey
	}
	return nil
}

func leaf(state tls.ConnectionState) *x509.Certificate { return state.PeerCertificates[0] }

// refusedError means that nothing connects to an address.
type refusedError struct{ address netip.Addr }

func (e refusedError) Error() string {
	return fmt.Sprintf("%s is not a public address, or one of the gateway's own", e.address)
}

// control judges the address to which an endpoint's name was resolved, right before the connection.
func (p *Prober) control(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("address %s: %w", address, err)
	}
	at := egress.Plain(to.Addr())
	in := func(list []netip.Prefix) bool {
		return slices.ContainsFunc(list, func(n netip.Prefix) bool { return n.Contains(at) })
	}
	if in(p.cfg.Refused) || !egress.IsPublic(at, p.cfg.Allowed) || !in(p.cfg.Allowed) && p.own.has(at) {
		return refusedError{at}
	}
	return nil
}

// ownAddresses are those of this machine.
type ownAddresses struct {
	mu   sync.Mutex
	list []netip.Addr
	read time.Time
}

// ownKept is how long the machine's addresses are kept before they are read again.
const ownKept = time.Minute

func (o *ownAddresses) has(a netip.Addr) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if time.Since(o.read) > ownKept {
		found, err := net.InterfaceAddrs()
		if err != nil {
			return true // refuse what cannot be judged
		}
		o.read, o.list = time.Now(), o.list[:0]
		for _, f := range found {
			if n, err := netip.ParsePrefix(f.String()); err == nil {
				o.list = append(o.list, egress.Plain(n.Addr()))
			}
		}
	}
	return slices.Contains(o.list, a)
}
