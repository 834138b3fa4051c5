package announce

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"
)

// BrokerCode is the kind of a broker error.
type BrokerCode string

// The codes of a BrokerError.
const (
	CodeUnreachable BrokerCode = "unreachable"
	CodeUntrusted   BrokerCode = "untrusted"   // the TLS certificate was not accepted
	CodeBadLogin    BrokerCode = "bad_login"   // user or password
	CodeForbidden   BrokerCode = "forbidden"   // the user may not do this
	CodeNoExchange  BrokerCode = "no_exchange" // the control plane was not there yet
	CodeMismatch    BrokerCode = "mismatch"    // something exists with other settings
	CodeUnroutable  BrokerCode = "unroutable"  // no queue is bound
	CodeRejected    BrokerCode = "rejected"    // the broker did not take a message
	CodeLost        BrokerCode = "lost"        // the connection went away
	CodeBlocked     BrokerCode = "blocked"     // the broker takes nothing: memory or disk
	CodeUnconfirmed BrokerCode = "unconfirmed" // no answer in time
)

// BrokerError describes what failed, at which broker, and the fix. It contains no password.
type BrokerError struct {
	Op     string // what was tried
	Broker string // host:port
	Code   BrokerCode
	Err    error
	Fix    string
}

func (e *BrokerError) Error() string {
	var s strings.Builder
	s.WriteString(e.Op)
	if e.Broker != "" {
		s.WriteString(" at broker " + e.Broker)
	}
	if e.Err != nil {
		s.WriteString(": " + e.Err.Error())
	}
	if e.Fix != "" {
		s.WriteString(" (" + e.Fix + ")")
	}
	return s.String()
}

func (e *BrokerError) Unwrap() error { return e.Err }

// CodeOf returns the code of the broker error in err, or "".
func CodeOf(err error) BrokerCode {
	var e *BrokerError
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// dialError explains why no connection came about.
func dialError(user, broker string, err error) error {
	e := &BrokerError{Op: "connect", Broker: broker, Err: err}
	var unknownCA x509.UnknownAuthorityError
	var wrongName x509.HostnameError
	var badCert *tls.CertificateVerificationError
	var refused *amqp.Error
	var network *net.OpError
	switch {
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
