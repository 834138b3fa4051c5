package tunnel

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/link"
)

// What a person can do about the usual causes.
const (
	actWait      = "nothing to do: it is tried again by itself"
	actNetwork   = "check that this machine may connect out to that address (firewall, proxy, DNS); it is tried again by itself"
	actTrust     = "check that the control plane's address and CA are the ones this agent was registered with"
	actClock     = "check this machine's clock and the validity of the certificate named"
	actIdentity  = "check this machine's clock; if it is right, the agent's certificate has expired or is from another control plane: restart the agent to renew it, or register it again"
	actOperator  = "ask the operator of the control plane; to connect again the agent must be registered with a new token"
	actNewer     = "check that the agent's and the control plane's versions fit together; it is tried again by itself"
	opConnect    = "connect to"
	opLogIn      = "log in at"
	opStay       = "stay connected to"
	opProxy      = "connect through the proxy to"
	reasonClosed = "the connection was closed"
)

// explainer makes errors that name the server and what to do.
type explainer struct {
	where string // the server's address
}

func (e explainer) wrap(op string, err error, action string) *Error {
	return &Error{Op: op, Where: e.where, Action: action, Err: err}
}

// connect explains why connecting failed.
func (e explainer) connect(err error) error {
	if _, ok := errors.AsType[*Error](err); ok {
		return err
	}
	return e.connectFailure(err)
}

func (e explainer) connectFailure(err error) *Error {
	var (
		unknown  x509.UnknownAuthorityError
		hostname x509.HostnameError
		invalid  x509.CertificateInvalidError
	)
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return e.wrap(opConnect, err, actClock)
	case errors.As(err, &unknown), errors.As(err, &hostname), errors.As(err, &invalid):
		return e.wrap(opConnect, err, actTrust)
	case isAlert(err):
		return e.wrap(opLogIn, err, actIdentity)
	default:
		return e.wrap(opConnect, err, actNetwork)
	}
}

// login explains why the server refused frpc.
func (e explainer) login(err error) error {
	if refusal, ok := link.ParseRefusal(err.Error()); ok {
		explained := e.wrap(opLogIn, errors.New(refusal.Reason), actWait)
		explained.Spread, explained.refused = refusal.Within, true
		if refusal.Final {
			explained.Final, explained.Action = true, actOperator
		}
		return explained
	}
	if isClosed(err) {
		return e.wrap(opLogIn, errors.New(reasonClosed), actWait)
	}
	return e.wrap(opLogIn, err, actNewer)
}

// lost explains the end of a session.
func (e explainer) lost(err error) error {
	if isAlert(err) {
		return e.wrap(opLogIn, err, actIdentity)
	}
	return e.wrap(opStay, errors.New(reasonClosed), actWait)
}

// goAway explains a session's end that the server announced.
func (e explainer) goAway(announced *link.Refused) error {
	explained := e.wrap(opStay, errors.New(announced.Reason), actWait)
	explained.Spread = announced.Within
	return explained
}

// neither returns TCP's failure together with that of the other transport.
func (e explainer) neither(tcp, websocket error) error {
	switch {
	case websocket == nil:
		return tcp
	case tcp == nil:
		return websocket
	}
	explained := &Error{}
	if !errors.As(e.connect(tcp), &explained) {
		return errors.Join(tcp, websocket)
	}
	both := *explained
	both.Err = fmt.Errorf("%w; and over a websocket: %w", explained.Err, websocket)
	return &both
}

// isAlert reports whether an error is the peer's TLS refusal.
func isAlert(err error) bool {
	var alert tls.AlertError
	var op *net.OpError
	return errors.As(err, &alert) || errors.As(err, &op) && op.Op == "remote error"
}

// isClosed knows the end of a connection also after frp has made a text of it.
func isClosed(err error) bool {
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
		return true
	}
	text := err.Error()
	return slices.ContainsFunc(endings, func(ending string) bool { return strings.Contains(text, ending) })
}

var endings = []string{"EOF", "session shutdown", "closed", "broken pipe", "connection reset", "keepalive timeout"}
