package login

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/decode"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/proxy"
	"github.com/pipeops/pipeops-vm-agent/internal/trustanchor"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
)

// Exchange is how a Runner without stored credentials gets them, for an ID token.
type Exchange struct {
	// ControlPlane is the URL of the control plane's HTTPS API.
	ControlPlane string
	Runner       string
	// Fingerprint is that of the control plane's CA; empty means that the machine's CAs verify the
	// control plane.
	Fingerprint string
	// Audience of the token; empty means ControlPlane.
	Audience string
	Token    Token

	key     *ecdsa.PrivateKey // of all tries: a token is good for one
	keyText string
}

// Want returns the audience that the token is to have.
func (e *Exchange) Want() string { return cmp.Or(e.Audience, e.ControlPlane) }

// Validate reports what is missing, by its variable.
func (e *Exchange) Validate() error {
	u, err := url.Parse(e.ControlPlane)
	switch {
	case err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("%s: %q is not https://HOST[:PORT]", EnvControlPlane, e.ControlPlane)
	case e.Runner == "":
		return fmt.Errorf("%s is missing: the Runner's name", EnvRunner)
	case e.Fingerprint != "" && !trustanchor.IsFingerprint(e.Fingerprint):
		return fmt.Errorf("%s: %q is not a CA's fingerprint, as `pipeops-controlplane runner create` prints it", EnvFingerprint, e.Fingerprint)
	case e.Token == nil:
		return fmt.Errorf("there is no ID token: set %s or %s, or give a job of GitHub Actions the permission id-token: write", EnvToken, EnvTokenFile)
	}
	return nil
}

// Credentials makes a key and exchanges a token for its certificate. The key is nowhere else.
// Called again, it has the same key.
func (e *Exchange) Credentials(ctx context.Context) (credentials.Credentials, error) {
	if err := e.Validate(); err != nil {
		return credentials.Credentials{}, err
	}
	u, err := url.Parse(e.ControlPlane)
	if err != nil {
		return credentials.Credentials{}, err
	}
	if e.key == nil {
		if e.key, e.keyText, err = newKey(); err != nil {
			return credentials.Credentials{}, err
		}
	}
	config := &tls.Config{MinVersion: tls.VersionTLS13}
	if e.Fingerprint != "" {
		config = trustanchor.Pinned(u.Hostname(), e.Fingerprint, nil)
	}
	transport := proxy.FromEnvironment().Use(&http.Transport{
		TLSClientConfig: config, ForceAttemptHTTP2: true, TLSHandshakeTimeout: callTimeout / 2, ResponseHeaderTimeout: callTimeout,
	})
	defer transport.CloseIdleConnections()
	answer, err := exchange(ctx, transport, e, e.key)
	if err != nil {
		return credentials.Credentials{}, err
	}
	c := credentials.Credentials{
		Runner: e.Runner, ControlPlane: e.ControlPlane, Edge: answer.Edge, AgentsDomain: answer.AgentsDomain, TrustDomain: answer.TrustDomain,
		CA: answer.CA, Certificate: answer.Certificate, Key: e.keyText,
	}
	if _, err := c.TLSCertificate(); err != nil {
		return credentials.Credentials{}, fmt.Errorf("the control plane's answer: %w", err)
	}
	return c, nil
}

func newKey() (key *ecdsa.PrivateKey, text string, err error) {
	if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, "", err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, "", err
	}
	return key, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), nil
}

// exchange sends a token and a certificate request for a key.
func exchange(ctx context.Context, by http.RoundTripper, e *Exchange, key any) (answer Exchanged, err error) {
	token, err := e.Token(ctx, e.Want())
	if err != nil {
		return answer, err
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return answer, err
	}
	body, err := json.Marshal(ExchangeRequest{
		Runner: e.Runner, Token: token, Request: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})),
	})
	if err != nil {
		return answer, err
	}
	err = post(ctx, by, strings.TrimSuffix(e.ControlPlane, "/")+ExchangePath, body, &answer)
	return answer, err
}

// post sends a request and decodes the answer. It follows no redirects.
func post(ctx context.Context, by http.RoundTripper, address string, body []byte, into any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := by.RoundTrip(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return problem.Read(resp)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return err
	}
	return parse(text, into)
}

func parse(body []byte, into any) error {
	if len(body) > maxAnswer {
		return errors.New("the control plane's answer is too large")
	}
	if err := decode.LimitsFor(maxAnswer).JSON(body, into); err != nil {
		return fmt.Errorf("the control plane's answer is not the JSON expected: %w", err)
	}
	return nil
}
