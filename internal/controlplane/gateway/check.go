package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
)

// checkTimeout bounds a request of Check.
const checkTimeout = 5 * time.Second

// Check requests a path of a host as a visitor does, and returns why that got no answer of the App.
// Any status of the App is an answer.
func (g *Gateway) Check(ctx context.Context, host, path string) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if found, served := g.cfg.Table.Lookup(host); served && found.Passed != 0 {
		return checkResult(g.ports.checkPassed(ctx, found))
	}
	if err := g.checkCertificate(ctx, host); err != nil {
		return fmt.Errorf("the gateway has no valid certificate for the host: %w", err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodHead, "https://"+host+path, http.NoBody)
	if err != nil {
		return err
	}
	r.RequestURI, r.RemoteAddr = r.URL.RequestURI(), "127.0.0.1:0"
	r.Header.Set("User-Agent", gatewaywire.CheckAgent)
	v := newVisit(r)
	g.checked(v, r)
	return checkResult(v.failed)
}

// checkResult returns what a word says to an App's owner; nil if a visitor would be served.
func checkResult(word string) error {
	switch word {
	case "", denied.word, unauthorized.word, tooMany.word, signIn.word, tokenWanted.word: // what the App demands of its visitors
		return nil
	case gatewaywire.NotReady:
		return errors.New("no pod of the App accepts connections at its port, or a Secret for its visitors cannot be used; `pipeops-runner routes` shows which")
	case clientGone.word, gatewaywire.TimedOut:
		return fmt.Errorf("the App does not answer a request within %s", checkTimeout)
	case gatewaywire.Unreachable:
		return errors.New("the App closes the connection, or gives no valid answer of HTTP; look at its log")
	}
	return fmt.Errorf("the gateway answers its own request with %q: %s", word, strings.ToLower(failuresByWord[word].text))
}

// failuresByWord are those that are not App's.
var failuresByWord = map[string]failure{
	starting.word: starting, unknownHost.word: unknownHost, noRoute.word: noRoute, offline.word: offline, busy.word: busy,
	notReached.word: notReached, noBackend.word: noBackend,
}

// checked serves the request of a check.
func (g *Gateway) checked(v *visit, r *http.Request) {
	defer func() {
		if p := recover(); p != nil && p != http.ErrAbortHandler { //nolint:errorlint // what ReverseProxy panics with
			panic(p)
		}
	}()
	g.serve(discarded{http.Header{}}, r, v)
}

// checkCertificate makes the handshake of a visitor. Who trusts the CA is the operator's choice.
func (g *Gateway) checkCertificate(ctx context.Context, host string) error {
	near, far := net.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- tls.Server(far, g.cfg.TLS).HandshakeContext(ctx)
		_ = far.Close()
	}()
	client := tls.Client(near, &tls.Config{
		ServerName: host, MinVersion: tls.VersionTLS12,
		InsecureSkipVerify: true, //nolint:gosec // name and time are verified below
		VerifyConnection: func(state tls.ConnectionState) error {
			leaf, now := state.PeerCertificates[0], time.Now()
			if now.Before(leaf.NotBefore) || now.After(leaf.NotAfter) {
				return fmt.Errorf("it is valid from %s to %s", leaf.NotBefore.Format(time.RFC3339), leaf.NotAfter.Format(time.RFC3339))
			}
			return leaf.VerifyHostname(host)
		},
	})
	err := client.HandshakeContext(ctx)
	_ = near.Close()
	if other := <-done; err != nil && other != nil && errors.Is(err, net.ErrClosed) {
		err = other
	}
	return err
}

// discarded is an answer that no client reads.
type discarded struct{ header http.Header }

// Header implements http.ResponseWriter.
func (d discarded) Header() http.Header { return d.header }

// WriteHeader implements http.ResponseWriter.
func (discarded) WriteHeader(int) {}

// Write implements io.Writer.
func (discarded) Write(p []byte) (int, error) { return len(p), nil }
