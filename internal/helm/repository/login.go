package repository

import (
	"net/url"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/scope"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Keys of a Secret with a login.
const (
	keyURL      = "url"
	keyUsername = "username"
	keyPassword = "password"
	keyRealm    = "realm" // optional
)

// CredentialsField is the field of a spec that names the Secret with the login.
const CredentialsField = "chart.credentialsSecret" //nolint:gosec // no credential: the name of a field

// Login is what is sent to addresses within its scope, and nowhere else.
type Login struct {
	username, password string
	scope              scope.Scope
	realm              scope.Scope // a registry's token server on another host; may be zero
}

// isFor reports whether a request to a URL may carry the login.
func (l *Login) isFor(at *url.URL) bool { return l != nil && l.scope.Holds(at) }

// ReadLogin reads a Secret's values for a chart. The Secret itself must name the repository or
// registry that it is for. Otherwise a caller could have any Secret of the namespace with a
// password sent to its own server.
func ReadLogin(secret string, data map[string][]byte, chart runnerapi.ChartSource) (*Login, error) {
	bad := func(fix, format string, args ...any) error {
		return problem.Errorf(problem.Invalid, fix, "Secret %s "+format, append([]any{secret}, args...)...).WithField(CredentialsField)
	}
	l := &Login{username: string(data[keyUsername]), password: string(data[keyPassword])}
	if len(data[keyURL]) == 0 {
		return nil, bad("add the key url to it: the address of the repository or registry that the login is for, or the beginning of its addresses",
			"has no url: it does not say where its login may be sent")
	}
	if l.username == "" || l.password == "" {
		return nil, bad("set all three: pipeops-runner secret set AGENT "+secret+" --from-literal url=… --from-literal username=… --from-stdin password",
			"lacks username or password")
	}
	var err error
	if l.scope, err = scope.Parse(strings.TrimSpace(string(data[keyURL]))); err != nil {
		return nil, bad("correct the key url of it", "has a url that %v", err)
	}
	if realm := strings.TrimSpace(string(data[keyRealm])); realm != "" {
		if l.realm, err = scope.Parse(realm); err != nil {
			return nil, bad("correct the key realm of it, or remove the key", "has a realm that %v", err)
		}
	}
	text := chart.Repository
	if chart.OCI != "" {
		text = chart.OCI
	}
	at, err := url.Parse(text)
	if err != nil || !l.isFor(at) {
		return nil, bad("name the Secret that is for it; which addresses a Secret is for stands in its key url",
			"is not for this repository or registry")
	}
	return l, nil
}
