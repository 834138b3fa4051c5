package login

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/proxy"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
)

const (
	// callTimeout bounds one call to the control plane.
	callTimeout = 30 * time.Second
	// endedTimeout bounds a renewal that the connection to an agent waits for, and endedAgain is
	// how long the next one is put off if it fails.
	endedTimeout = 10 * time.Second
	endedAgain   = time.Minute
	// maxAnswer is room for a certificate and the CAs of many years.
	maxAnswer = 256 << 10
	// DefaultEvery is how often Run asks.
	DefaultEvery = time.Hour
)

// Config configures a Login. Credentials are required.
type Config struct {
	Credentials credentials.Credentials
	// Token returns an ID token for Audience, which is the control plane's URL if it is empty. A
	// certificate that was issued for an ID token is replaced by another such one, for the same
	// key. Nil for none.
	Token    Token
	Audience string
	// Save keeps changed credentials; nil keeps them in memory only.
	Save func(credentials.Credentials) error
	// Note hears of what did not work. The old certificate is used on, and the next
	// call tries again. Nil is silent.
	Note func(error)
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Login is a Runner's credentials. It is safe for concurrent use.
type Login struct {
	save      func(credentials.Credentials) error
	note      func(error)
	now       func() time.Time
	roots     *x509.CertPool
	token     Token
	audience  string
	transport atomic.Pointer[http.Transport]

	changing    sync.Mutex   // one change at a time
	putOff      atomic.Int64 // Unix nanoseconds until which Certificate does not renew
	credentials atomic.Pointer[credentials.Credentials]
	certificate atomic.Pointer[tls.Certificate]
}

// Open reads a file of credentials, and writes it when they change.
func Open(file string, note func(error)) (*Login, error) {
	credentials, err := credentials.Load(file)
	if err != nil {
		return nil, err
	}
	return New(Config{Credentials: credentials, Note: note, Save: To(file)})
}

// To keeps credentials in a file. Where that is a link, it stays one.
func To(file string) func(credentials.Credentials) error {
	return func(c credentials.Credentials) error {
		target, err := filepath.EvalSymlinks(file)
		if err != nil {
			return err
		}
		return c.Write(target)
	}
}

// New checks the credentials. Nothing is sent yet.
func New(c Config) (*Login, error) {
	cert, err := c.Credentials.TLSCertificate()
	if err != nil {
		return nil, err
	}
	roots, err := c.Credentials.Roots()
	if err != nil {
		return nil, err
	}
	l := &Login{save: c.Save, note: c.Note, now: c.Now, roots: roots, token: c.Token, audience: c.Audience}
	if l.note == nil {
		l.note = func(error) {}
	}
	if l.now == nil {
		l.now = time.Now
	}
	l.credentials.Store(&c.Credentials)
	l.certificate.Store(&cert)
	l.transport.Store(l.newTransport())
	return l, nil
}

func (l *Login) newTransport() *http.Transport {
	return proxy.FromEnvironment().Use(&http.Transport{
		TLSClientConfig: l.TLS(l.now), ForceAttemptHTTP2: true,
		TLSHandshakeTimeout: callTimeout / 2, ResponseHeaderTimeout: callTimeout, IdleConnTimeout: callTimeout,
	})
}

// Close drops the connections that are kept alive.
func (l *Login) Close() { l.transport.Load().CloseIdleConnections() }

// Credentials returns the current credentials.
func (l *Login) Credentials() credentials.Credentials { return *l.credentials.Load() }

// Certificate returns the certificate for [client.Config]. It renews one that has ended,
// and returns it as it is if that fails.
func (l *Login) Certificate() (*tls.Certificate, error) {
	now := l.now()
	if !l.ended() || now.UnixNano() < l.putOff.Load() {
		return l.certificate.Load(), nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), endedTimeout)
	defer cancel()
	if err := l.follow(ctx, issuerOf(l.certificate.Load())); err != nil {
		l.putOff.Store(now.Add(endedAgain).UnixNano())
		l.note(err)
	}
	return l.certificate.Load(), nil
}

// Roots returns the roots for [client.Config]. They never expire: each CA is signed by the
// one before it.
func (l *Login) Roots() *x509.CertPool { return l.roots }

// TLS returns the configuration for connections to the control plane; a nil now means time.Now.
func (l *Login) TLS(now func() time.Time) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: l.roots, Time: now,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return l.certificate.Load(), nil // not Certificate: the call that renews one comes here, too
		},
	}
}

// HTTPClient returns a client for calls of the control plane, for [announce.SnapshotClient] for
// example. Once it has returned an answer, the certificate is from the current CA, and has a third
// of its life left.
func (l *Login) HTTPClient() *http.Client {
	return &http.Client{Transport: following{l}, Timeout: 2 * callTimeout}
}

// following renews the certificate: before a call if it has ended, and after one if it is due or
// the answer names another issuing CA.
type following struct{ *Login }

func (f following) RoundTrip(r *http.Request) (*http.Response, error) {
	if f.ended() {
		if err := f.follow(r.Context(), issuerOf(f.certificate.Load())); err != nil && f.ended() {
			closeBody(r)
			return nil, err // the call would only be refused
		}
	}
	resp, err := f.transport.Load().RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if issuer := resp.Header.Get(HeaderIssuer); issuer != "" && resp.StatusCode < http.StatusMultipleChoices {
		if err := f.follow(r.Context(), issuer); err != nil {
			f.note(err)
		}
	}
	return resp, nil
}

// closeBody does what a RoundTripper owes to a request that it does not send.
func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
}

// Run keeps the certificate valid for a Runner that rarely calls the control plane, until the
// context ends. It asks that often, and also when the certificate is due. A duration of 0 means
// DefaultEvery.
func (l *Login) Run(ctx context.Context, every time.Duration) {
	if every <= 0 {
		every = DefaultEvery
	}
	for {
		if err := l.Check(ctx); err != nil && ctx.Err() == nil {
			l.note(err)
		}
		if !retry.Wait(ctx, retry.Jitter(l.next(every))) {
			return
		}
	}
}

// Check requests the certificate as the control plane would issue it now, and takes it if it lasts
// longer or comes from another CA.
func (l *Login) Check(ctx context.Context) error { return l.follow(ctx, "") }

// follow gets the certificate of that issuer, or of whichever there is now, unless the one that
// there is will do.
func (l *Login) follow(ctx context.Context, issuer string) error {
	l.changing.Lock()
	defer l.changing.Unlock()
	if issuer == issuerOf(l.certificate.Load()) && !l.due() {
		return nil
	}
	answer, err := l.ask(ctx)
	if err != nil {
		return fmt.Errorf("the Runner's certificate was not renewed: %w", err)
	}
	return l.take(answer)
}

func issuerOf(cert *tls.Certificate) string {
	return hex.EncodeToString(cert.Leaf.AuthorityKeyId)
}

// ask requests another certificate: for an ID token, if the one that there is was issued for one.
func (l *Login) ask(ctx context.Context) (answer Answer, err error) {
	now := l.Credentials()
	if l.token == nil || credentials.ActorOf(l.certificate.Load().Leaf) == "" {
		err = post(ctx, l.transport.Load(), strings.TrimSuffix(now.ControlPlane, "/")+Path, nil, &answer)
		return answer, err
	}
	again := Exchange{ControlPlane: now.ControlPlane, Runner: now.Runner, Audience: l.audience, Token: l.token}
	exchanged, err := exchange(ctx, l.transport.Load(), &again, l.certificate.Load().PrivateKey)
	return exchanged.Answer, err
}

// take uses a certificate from now on. What cannot be kept is used all the same.
func (l *Login) take(answer Answer) error {
	next := l.Credentials()
	next.Certificate, next.CA = answer.Certificate, answer.CA
	cert, err := next.TLSCertificate()
	if err != nil {
		return fmt.Errorf("the control plane's answer: %w", err)
	}
	if _, err := next.Roots(); err != nil {
		return fmt.Errorf("the control plane's answer: %w", err)
	}
	if old := l.certificate.Load(); issuerOf(&cert) == issuerOf(old) && !cert.Leaf.NotAfter.After(old.Leaf.NotAfter) {
		return nil
	}
	l.certificate.Store(&cert)
	l.credentials.Store(&next)
	// Connections that were made with the old one get no more calls: they would end with it.
	l.transport.Swap(l.newTransport()).CloseIdleConnections()
	if l.save == nil {
		return nil
	}
	if err := l.save(next); err != nil {
		return fmt.Errorf("the Runner's certificate was renewed, but cannot be kept in the file of credentials: %w", err)
	}
	return nil
}
