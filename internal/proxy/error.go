package proxy

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
)

// Error is a proxy's failure. It contains no password.
type Error struct {
	Proxy string // its URL; empty if it is not known
	// Variable is the malformed variable; empty if the variable that names the proxy is
	// well-formed.
	Variable string
	// Final reports that a retry is pointless: a variable is malformed, or the proxy wants
	// other credentials.
	Final bool
	Err   error
	Fix   string
}

func (e *Error) Error() string {
	if e.Variable != "" {
		return fmt.Sprintf("%s is malformed: %v", e.Variable, e.Err)
	}
	if e.Proxy == "" {
		return fmt.Sprintf("the proxy in %s: %v", variable(), e.Err)
	}
	return fmt.Sprintf("the proxy %s in %s: %v", e.Proxy, variable(), e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Explain returns the proxy's failure in an error of [Func.Dial] or of a transport that has
// [Func.Use].
func Explain(err error) (*Error, bool) {
	if already, ok := errors.AsType[*Error](err); ok {
		return already, true
	}
	// The operations of net/http's own connections to proxies.
	if op, ok := errors.AsType[*net.OpError](err); ok && (op.Op == "proxyconnect" || op.Op == "socks connect") {
		return &Error{Err: op.Err, Fix: fixUnreachable()}, true
	}
	return nil, false
}

// refusal returns what a proxy's answer to CONNECT means.
func refusal(via *url.URL, address string, answer *http.Response) *Error {
	e := &Error{Proxy: via.Redacted(), Final: answer.StatusCode == http.StatusProxyAuthRequired}
	switch {
	case !e.Final:
		e.Err = fmt.Errorf("it answered %s to CONNECT %s", answer.Status, address)
		e.Fix = "have the proxy allow CONNECT to " + address + ", or put the host into NO_PROXY"
	case via.User == nil:
		e.Err = fmt.Errorf("it requires a user and a password (%s)", answer.Status)
		e.Fix = fmt.Sprintf("set %s=http://USER:PASSWORD@HOST:PORT", variable())
	default:
		e.Err = fmt.Errorf("it does not accept the password of the user %q (%s)", via.User.Username(), answer.Status)
		e.Fix = fmt.Sprintf("correct the user and the password in %s; percent-encode special characters", variable())
	}
	return e
}

// variable returns the name of the variable that names the proxy for HTTPS.
func variable() string { return setName("https_proxy") }

func fixUnreachable() string {
	return "correct " + variable() + ", start the proxy, or put the host into NO_PROXY"
}
