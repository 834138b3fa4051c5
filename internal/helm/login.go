package helm

import (
	"context"
	"errors"
	"net/url"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
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

// login reads the credentials that a spec names.
func (p *put) login(ctx context.Context) (*login, error) {
	name := p.spec.Chart.CredentialsSecret
	if name == "" {
		return nil, nil
	}
	at, err := p.clients.core.Secrets(p.key.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		err = kubeproblem.From(err, "reading Secret "+name)
		if known := (*problem.Error)(nil); errors.As(err, &known) {
			return nil, known.WithField(credentialsField)
		}
		return nil, err
	}
	return readLogin(name, at.Data, p.spec.Chart)
}

const credentialsField = "chart.credentialsSecret" //nolint:gosec // no credential: the name of a field

// readLogin reads a Secret's values for a chart. The Secret itself must name the repository or
// registry that it is for. Otherwise a caller could have any Secret of the namespace with a
// password sent to its own server.
func readLogin(secret string, data map[string][]byte, chart runnerapi.ChartSource) (*login, error) {
	bad := func(fix, format string, args ...any) error {
		return problem.Errorf(problem.Invalid, fix, "Secret %s "+format, append([]any{secret}, args...)...).WithField(credentialsField)
	}
	l := &login{username: string(data[keyUsername]), password: string(data[keyPassword])}
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
