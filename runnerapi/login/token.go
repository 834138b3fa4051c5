package login

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/boundedfile"
	"github.com/pipeops/pipeops-vm-agent/internal/decode"
	"github.com/pipeops/pipeops-vm-agent/internal/proxy"
)

// The variables of a job that exchanges ID tokens for certificates of a Runner.
const (
	EnvControlPlane = "PIPEOPS_CONTROL_PLANE_URL"
	EnvRunner       = "PIPEOPS_RUNNER"
	// EnvFingerprint has the fingerprint of the control plane's CA.
	EnvFingerprint = "PIPEOPS_CA_FINGERPRINT"
	// EnvAudience has the audience of the token, if that is not the control plane's URL.
	EnvAudience = "PIPEOPS_OIDC_AUDIENCE"
	// EnvToken has the token itself, and EnvTokenFile names a file with it.
	EnvToken     = "PIPEOPS_OIDC_TOKEN"      //nolint:gosec // a variable's name
	EnvTokenFile = "PIPEOPS_OIDC_TOKEN_FILE" //nolint:gosec // a variable's name

	// The variables with which GitHub Actions gives tokens to a job with the permission id-token.
	envGitHubURL    = "ACTIONS_ID_TOKEN_REQUEST_URL"
	envGitHubBearer = "ACTIONS_ID_TOKEN_REQUEST_TOKEN"
)

// maxToken bounds an ID token, in bytes.
const maxToken = 32 << 10

// Token returns an ID token for an audience. Errors do not have it.
type Token func(ctx context.Context, audience string) (string, error)

// FileToken reads the token from a file each time, for example one that a kubelet keeps.
func FileToken(path string) Token {
	return func(context.Context, string) (string, error) {
		text, err := boundedfile.Read(path, maxToken)
		if err != nil {
			return "", fmt.Errorf("file with the ID token: %w", err)
		}
		return named(string(text), "the file "+path)
	}
}

// EnvironmentToken returns the token that the environment has, or where it says to get one: from a
// variable, a file or GitHub Actions. It returns nil for none.
func EnvironmentToken() Token {
	switch {
	case os.Getenv(EnvToken) != "":
		return func(context.Context, string) (string, error) { return named(os.Getenv(EnvToken), EnvToken) }
	case os.Getenv(EnvTokenFile) != "":
		return FileToken(os.Getenv(EnvTokenFile))
	case os.Getenv(envGitHubURL) != "" && os.Getenv(envGitHubBearer) != "":
		return func(ctx context.Context, audience string) (string, error) {
			return gitHubToken(ctx, os.Getenv(envGitHubURL), os.Getenv(envGitHubBearer), audience)
		}
	}
	return nil
}

// named returns a token that something has.
func named(text, what string) (string, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return "", fmt.Errorf("%s has no ID token", what)
	}
	return text, nil
}

// gitHubToken requests a token for a job of GitHub Actions.
func gitHubToken(ctx context.Context, address, bearer, audience string) (string, error) {
	const what = "GitHub's ID token"
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" && u.Hostname() != "127.0.0.1" { // others on the network could read the token
		return "", fmt.Errorf("%s: %s is not an https address", what, envGitHubURL)
	}
	query := u.Query()
	query.Set("audience", audience)
	u.RawQuery = query.Encode()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil) //nolint:gosec // the environment of the job is trusted
	if err != nil {
		return "", fmt.Errorf("%s: %w", what, err)
	}
	req.Header.Set("Authorization", "Bearer "+bearer)
	transport := proxy.FromEnvironment().Use(&http.Transport{TLSHandshakeTimeout: callTimeout / 2})
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req) // no redirects, which would get the bearer
	if err != nil {
		return "", fmt.Errorf("%s: %w", what, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: GitHub answered %s (fix: give the job the permission id-token: write)", what, resp.Status)
	}
	var answer struct{ Value string }
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxToken+1))
	if err != nil {
		return "", fmt.Errorf("%s: %w", what, err)
	}
	if decode.LimitsFor(maxToken).JSON(body, &answer) != nil { // its text may have a part of the token
		return "", errors.New(what + ": the answer is not the JSON expected")
	}
	return named(answer.Value, "GitHub's answer")
}
