package forge

import (
	"context"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"regexp"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/pipeops/pipeops-vm-agent/internal/scope"
	"github.com/pipeops/pipeops-vm-agent/internal/source/git"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Keys of the Secret, beside those of the credentials for Git. The keys of a GitHub App are named
// as in Flux and Argo CD.
const (
	keyToken        = "token"
	keyAPI          = "api"
	keyApp          = "githubAppID"
	keyInstallation = "githubAppInstallationID"
	keyPrivate      = "githubAppPrivateKey"
)

// Credentials are how the agent identifies itself to a forge.
type Credentials struct {
	secret string // its name, for errors
	token  string
	app    *githubApp // instead of a token
	auth   git.Auth   // its roots
}

// githubApp is an installation of a GitHub App, which gets its tokens by a key.
type githubApp struct {
	id, installation string
	key              *rsa.PrivateKey
}

// ReadCredentials returns a Secret's values for a repository. The Secret itself must name the
// repositories that it is for, and the API's address if that does not follow from the
// repository's: a Runner that may name a Secret must not have it sent to its own server.
func ReadCredentials(secret string, data map[string][]byte, r Repository) (Credentials, error) {
	wrong := func(fix, format string, args ...any) error {
		e := bad(fix, format, args...)
		e.Message = "Secret " + secret + ": " + e.Message
		return e
	}
	c := Credentials{secret: secret, token: value(data, keyToken)}
	var err error
	if c.auth, err = git.ReadAuth(secret, data, r.address); err != nil {
		return Credentials{}, err
	}
	if !r.derived {
		allowed, err := scope.Parse(value(data, keyAPI))
		if err != nil || !allowed.Holds(r.api) {
			return Credentials{}, wrong("name the address in the Secret's key api, if the token may be sent there", "is not for the API at %s", r.api)
		}
	}
	if strings.ContainsFunc(c.token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return Credentials{}, wrong("correct the key token", "its token has characters that no token has")
	}
	if c.token != "" {
		return c, nil
	}
	if r.kind != runnerapi.GitHub || len(data[keyApp]) == 0 {
		return Credentials{}, wrong("add the key token: a token of the forge that may write commit statuses", "has no token")
	}
	if c.app, err = readApp(data); err != nil {
		return Credentials{}, wrong("copy the GitHub App's ID, its installation's ID, and the private key as GitHub made it, into githubAppID, githubAppInstallationID and githubAppPrivateKey", "%v", err)
	}
	return c, nil
}

func bad(fix, format string, args ...any) *git.Error {
	return git.NewError(git.Credentials, fix, format, args...)
}

func value(data map[string][]byte, key string) string { return strings.TrimSpace(string(data[key])) }

var appID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,40}$`)

func readApp(data map[string][]byte) (*githubApp, error) {
	a := &githubApp{id: value(data, keyApp), installation: value(data, keyInstallation)}
	if !appID.MatchString(a.id) || !appID.MatchString(a.installation) {
		return nil, errNoApp
	}
	block, _ := pem.Decode(data[keyPrivate])
	if block == nil {
		return nil, errNoKey
	}
	key, err := x509.ParsePKCS1PrivateKey(block.Bytes)
	if err != nil {
		other, otherErr := x509.ParsePKCS8PrivateKey(block.Bytes)
		var isRSA bool
		if key, isRSA = other.(*rsa.PrivateKey); otherErr != nil || !isRSA {
			return nil, errNoKey
		}
	}
	a.key = key
	return a, nil
}

// GitHub takes tokens of an App for ten minutes at most, and its clock may be late.
const (
	appTokenFor  = 9 * time.Minute
	clockMayLate = time.Minute
)

func (a *githubApp) jwt(now time.Time) (string, error) {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: a.key}, (&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		return "", errNoKey
	}
	return jwt.Signed(signer).Claims(jwt.Claims{
		Issuer: a.id, IssuedAt: jwt.NewNumericDate(now.Add(-clockMayLate)), Expiry: jwt.NewNumericDate(now.Add(appTokenFor)),
	}).Serialize()
}

// appToken gets a token of the GitHub App that is good for this repository alone, and for nothing
// but what is to be done.
func (c *client) appToken(ctx context.Context) error {
	own, err := c.credentials.app.jwt(time.Now())
	if err != nil {
		return bad("put the App's private key into githubAppPrivateKey", "Secret %s: %v", c.credentials.secret, err)
	}
	_, name, _ := strings.Cut(c.repository.path, "/")
	c.token = own
	var got struct {
		Token string `json:"token"`
	}
	err = c.post(ctx, "/app/installations/"+c.credentials.app.installation+"/access_tokens", map[string]any{
		"repositories": []string{name}, "permissions": c.rights.app,
	}, &got)
	if err != nil {
		return err
	}
	if c.token = got.Token; c.token == "" {
		return git.NewError(git.Unreachable, "it is tried again", "%s gave no token", c.host)
	}
	return nil
}
