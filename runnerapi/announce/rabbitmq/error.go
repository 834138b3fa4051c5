package rabbitmq

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/pipeops/pipeops-vm-agent/internal/proxy"
)

// Code is the kind of an Error.
type Code string

// The codes of an Error.
const (
	CodeUnreachable Code = "unreachable"
	CodeUntrusted   Code = "untrusted"   // the TLS certificate was not accepted
	CodeBadLogin    Code = "bad_login"   // user or password
	CodeForbidden   Code = "forbidden"   // the user may not do this
	CodeNoExchange  Code = "no_exchange" // the control plane was not there yet
	CodeMismatch    Code = "mismatch"    // something exists with other settings
	CodeRejected    Code = "rejected"    // the broker did not take a message
	CodeLost        Code = "lost"        // the connection went away
	CodeBlocked     Code = "blocked"     // the broker takes nothing: memory or disk
	CodeUnconfirmed Code = "unconfirmed" // no answer in time
)

// Error describes what failed, at which broker, and the fix. It contains no password.
type Error struct {
	Op     string // what was tried
	Broker string // host:port
	Code   Code
	Err    error
	Fix    string
}

func (e *Error) Error() string {
	var s strings.Builder
	s.WriteString(e.Op)
	if e.Broker != "" {
		s.WriteString(" at broker " + e.Broker)
	}
	if e.Err != nil {
		s.WriteString(": " + e.Err.Error())
	}
	if e.Fix != "" {
		s.WriteString(" (fix: " + e.Fix + ")")
	}
	return s.String()
}

// ErrorName returns the code as text, by which a command line explains it.
func (e *Error) ErrorName() string { return string(e.Code) }

func (e *Error) Unwrap() error { return e.Err }

// CodeOf returns the code of the broker error in err, or "".
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

// dialError explains why no connection came about.
func dialError(user, broker string, err error) error {
	e := &Error{Op: "connect", Broker: broker, Err: err}
	var unknownCA x509.UnknownAuthorityError
	var wrongName x509.HostnameError
	var badCert *tls.CertificateVerificationError
	var refused *amqp.Error
	var network *net.OpError
	via, proxied := proxy.Explain(err)
	switch {
	case proxied:
		e.Code, e.Fix = CodeUnreachable, via.Fix
	case errors.As(err, &refused) && refused.Code == amqp.AccessRefused:
		e.Op, e.Code = "log in as "+user, CodeBadLogin
		e.Fix = "check the user and password in the broker URL"
	case errors.As(err, &refused) && refused.Code == amqp.NotAllowed:
		e.Op, e.Code = "log in as "+user, CodeForbidden
		e.Fix = "the user has no access to this virtual host: check the end of the broker URL and the user's permissions"
	case errors.As(err, &unknownCA):
		e.Code, e.Fix = CodeUntrusted, "the broker's certificate is from another CA: name the one that signed it with --broker-ca of `pipeops-controlplane serve`; Runners take it from their credentials, made after that"
	case errors.As(err, &wrongName):
		e.Code, e.Fix = CodeUntrusted, "the broker's certificate is for other names: use one of them in the broker URL"
	case errors.As(err, &badCert):
		e.Code, e.Fix = CodeUntrusted, "check the broker's certificate and this machine's clock"
	case errors.As(err, &network), errors.Is(err, context.DeadlineExceeded):
		e.Code, e.Fix = CodeUnreachable, "check that the broker runs and that a firewall lets this machine reach it"
	default:
		e.Code, e.Fix = CodeUnreachable, "check that this is RabbitMQ's AMQP port and that amqp:// or amqps:// is right for it"
	}
	return e
}

// ChannelError says why the broker closed a channel; reason is nil if it was closed in order.
func ChannelError(reason *amqp.Error) error {
	e := &Error{Op: "keep the channel", Code: CodeLost, Err: amqp.ErrClosed, Fix: "it is tried again"}
	if reason == nil {
		return e
	}
	e.Err = reason
	if reason.Code == amqp.AccessRefused {
		e.Op, e.Code, e.Fix = "use the channel", CodeForbidden, "check the user's permissions on the broker"
	}
	return e
}

// Settle names what failed in an error of an acknowledgement.
func Settle(err error) error {
	if err != nil {
		return fmt.Errorf("settle a message: %w", err)
	}
	return nil
}
