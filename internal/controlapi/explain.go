package controlapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/proxy"
	"github.com/pipeops/pipeops-vm-agent/internal/trustanchor"
)

// explainer turns a failure to get an answer into an Error with a fix.
type explainer struct {
	base *url.URL
	now  func() time.Time
}

// explain never returns nil. It returns the error of a cancelled context unchanged: that is not a
// failure of the connection.
func (x explainer) explain(err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	for _, try := range []func(error) *Error{x.trust, x.alert, x.network} {
		if e := try(err); e != nil {
			return e
		}
	}
	return x.unreachable(err, "look at the control plane's log and at what is between, a proxy for example")
}

// final reports whether a retry is useless until the configuration changes.
func (x explainer) final(err error) bool {
	return x.trust(err) != nil || x.alert(err) != nil
}

// trust explains a server certificate that was refused.
func (x explainer) trust(err error) *Error {
	var (
		pin       *trustanchor.FingerprintError
		authority x509.UnknownAuthorityError
		host      x509.HostnameError
		invalid   x509.CertificateInvalidError
	)
	switch {
	case errors.As(err, &pin):
		return Errorf(CodeWrongCA, "make sure that PIPEOPS_CONTROL_PLANE_URL is the control plane that made the token; if it was reinstalled, make a new token with `pipeops-controlplane token create`. Otherwise the connection is intercepted",
			"%s is not the control plane of this token: %v", x.base.Host, pin)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && invalid.Cert != nil:
		return x.clock(invalid.Cert)
	case errors.As(err, &host):
		return Errorf(CodeNameMismatch, "use one of these names in PIPEOPS_CONTROL_PLANE_URL, or start the control plane with --advertise-api=https://"+x.base.Host,
			"the certificate of %s is for other names: %s", x.base.Host, certificateNames(host.Certificate))
	case errors.As(err, &authority), errors.As(err, &invalid):
		return Errorf(CodeWrongCA, "use the token as it was printed, fingerprint included, or give the CA's certificate with --ca-file; if the control plane was reinstalled, register again with a new token. Otherwise the connection is intercepted",
			"the certificate of %s was not issued by a CA that this agent trusts", x.base.Host)
	}
	return nil
}

// clock explains a certificate that is not valid at this machine's time. The control plane's
// certificates begin a day before their creation and are renewed long before they expire, so
// usually the clock is wrong.
func (x explainer) clock(c *x509.Certificate) *Error {
	now := x.now()
	off, way := now.Sub(c.NotAfter), "ahead"
	if now.Before(c.NotBefore) {
		off, way = c.NotBefore.Sub(now), "behind"
	}
	return Errorf(CodeClockSkew, fixClock,
		"this machine's clock seems to be %s by at least %s: it says %s, the certificate of %s is valid from %s to %s",
		way, roundSkew(off), stamp(now), x.base.Host, stamp(c.NotBefore), stamp(c.NotAfter))
}

// alert explains why the server refused the client's certificate.
func (x explainer) alert(err error) *Error {
	op := &net.OpError{}
	if !errors.As(err, &op) || op.Op != "remote error" {
		return nil
	}
	switch text := op.Err.Error(); {
	case strings.Contains(text, "expired certificate"):
		return Errorf(CodeCertificateExpired, "prove the old key to get a new certificate; if this machine's clock is wrong, set it",
			"%s says that this agent's certificate has expired", x.base.Host)
	case strings.Contains(text, "certificate"):
		return Errorf(CodeCertificateUnknown, "register again with a new token from `pipeops-controlplane token create`",
			"%s does not accept this agent's certificate (%s)", x.base.Host, text)
	case strings.Contains(text, "protocol version"):
		return x.unreachable(err, "use a control plane that speaks TLS 1.3")
	}
	return nil
}

// network explains why there is no connection.
func (x explainer) network(err error) *Error {
	var (
		dns    *net.DNSError
		record tls.RecordHeaderError
	)
	if failed, ok := proxy.Explain(err); ok {
		return x.unreachableText(failed.Error(), failed.Fix)
	}
	switch {
	case errors.As(err, &dns):
		return x.unreachableText("the name "+dns.Name+" cannot be resolved", "correct the name in PIPEOPS_CONTROL_PLANE_URL, or this machine's DNS")
	case errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		return x.unreachableText("what answers there does not speak TLS", "correct the port in PIPEOPS_CONTROL_PLANE_URL")
	case errors.Is(err, syscall.ECONNREFUSED):
		return x.unreachableText("the connection was refused: nothing listens there", "start the control plane (`pipeops-controlplane serve`), or correct PIPEOPS_CONTROL_PLANE_URL")
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return x.unreachableText("there is no route to it", "check this machine's network")
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), isTimeout(err):
		return x.unreachableText("it did not answer in time", "let outbound TCP to "+x.base.Host+" through the firewall, or set HTTPS_PROXY")
	}
	return nil
}

func (x explainer) unreachable(err error, fix string) *Error {
	return x.unreachableText(rootCause(err), fix)
}

func (x explainer) unreachableText(why, fix string) *Error {
	return Errorf(CodeUnreachable, fix, "the control plane at %s cannot be reached: %s", x.hostPort(), why)
}

func (x explainer) hostPort() string {
	if x.base.Port() == "" {
		return net.JoinHostPort(x.base.Hostname(), "443")
	}
	return x.base.Host
}

// rootCause returns the innermost message: the text already has what url.Error and OpError add.
func rootCause(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

func certificateNames(c *x509.Certificate) string {
	names := append([]string(nil), c.DNSNames...)
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// Explain returns why a caller got no answer from the control plane at base. Like the Client's
// methods, it returns an Error with a fix.
func Explain(base *url.URL, now func() time.Time, err error) error {
	return explainer{base: base, now: now}.explain(err)
}
