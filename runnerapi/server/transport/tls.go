package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/wire"
)

// TLSConfig is what the agent needs to terminate a Runner's TLS. Its functions are called at
// each handshake, so certificates rotate without a new listener.
type TLSConfig struct {
	Certificate func() (*tls.Certificate, error)
	Roots       func() *x509.CertPool
	TrustDomain string
	// Time is the clock for checking certificates; the machine's if nil.
	Time func() time.Time
	// Revoked reports whether a Runner's certificate, named by its serial number in hexadecimal, is
	// revoked. Nil revokes none.
	Revoked func(serial string) bool
	// Trusts returns why the cluster owner does not trust a Runner that the control plane's CA
	// trusts, and nil otherwise. The Runner presented certs, its own first. A nil Trusts trusts
	// all.
	Trusts func(runner string, certs []*x509.Certificate) error
	// Labels returns the agent's labels, which a Runner's grant must select. Nil means none.
	Labels func() map[string]string
	// Current waits until Revoked and Labels are what the control plane says now, and returns an
	// error if that takes too long. Nil means always current.
	Current func(context.Context) error
	// Refused is called for each Runner that is not admitted or that is disconnected. It must not
	// block. It may be nil.
	Refused func(Refusal)
	// Refresh handles a refresh request of the control plane. It returns once the agent has
	// requested its news. It is nil for an agent that takes no refresh requests.
	Refresh func(context.Context) error
}

// TLS returns a configuration for mutual TLS 1.3. It admits only Runners of this trust domain
// whose grant selects this agent. All others fail in the handshake, before a request is read.
func TLS(c TLSConfig) *tls.Config {
	// Sessions are not resumed: each connection is verified against the current roots, and Runners
	// keep their connections anyway.
	base := &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: wire.ALPN, SessionTicketsDisabled: true}
	base.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		cert, err := c.Certificate()
		if err != nil {
			return nil, fmt.Errorf("runner API: certificate: %w", err)
		}
		protocols, verify := wire.ALPN, c.runnerVerifier(hello)
		if c.Refresh != nil && slices.Contains(hello.SupportedProtos, wire.RefreshProtocol) {
			protocols, verify = []string{wire.RefreshProtocol}, c.refreshVerifier(hello)
		}
		return &tls.Config{
			MinVersion: tls.VersionTLS13, NextProtos: protocols, SessionTicketsDisabled: true,
			Certificates: []tls.Certificate{*cert},
			// crypto/tls refuses critical extensions that it does not know, and a grant is one.
			// verify does what RequireAndVerifyClientCert would.
			ClientAuth: tls.RequireAnyClientCert, ClientCAs: c.Roots(), Time: c.Time,
			VerifyConnection: verify,
		}, nil
	}
	return base
}

func (c *TLSConfig) now() time.Time {
	if c.Time == nil {
		return time.Now()
	}
	return c.Time()
}

// verify returns a client certificate's chains to our CAs, as crypto/tls would verify them.
func (c *TLSConfig) verify(certs []*x509.Certificate) ([][]*x509.Certificate, error) {
	opts := x509.VerifyOptions{
		Roots: c.Roots(), CurrentTime: c.now(), Intermediates: x509.NewCertPool(),
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, cert := range certs[1:] {
		opts.Intermediates.AddCert(cert)
	}
	return credentials.Understood(certs[0]).Verify(opts)
}
