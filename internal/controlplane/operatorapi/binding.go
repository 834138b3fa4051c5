package operatorapi

import (
	"errors"
	"fmt"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/trustanchor"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/login"
)

// BindingBody is an OpenID Connect identity to which a Runner is bound.
type BindingBody struct {
	Issuer   string            `json:"issuer" maxLength:"512" doc:"URL of the issuer, as ID tokens have it in iss."`
	Audience string            `json:"audience,omitempty" maxLength:"512" doc:"What ID tokens must have in aud; the control plane's URL if absent."`
	Claims   map[string]string `json:"claims" minProperties:"1" maxProperties:"20" doc:"What ID tokens must have in other claims: the value as a text, or a list with it."`
}

// ParseClaims returns the claims of texts NAME=VALUE.
func ParseClaims(texts []string) (map[string]string, error) {
	claims := map[string]string{}
	for _, text := range texts {
		name, value, ok := strings.Cut(text, "=")
		if !ok {
			return nil, fmt.Errorf("%q is not NAME=VALUE, such as repository=shop/web", text)
		}
		if _, twice := claims[name]; twice {
			return nil, fmt.Errorf("%s is given twice; give one value", name)
		}
		claims[name] = value
	}
	if len(claims) == 0 {
		return nil, errors.New("is missing, and the issuer has tokens for others too; name what only your jobs have, such as repository=OWNER/NAME")
	}
	return claims, nil
}

// MadeRunner is what a Runner gets.
type MadeRunner struct {
	credentials.Credentials
	OpenID *store.Binding `json:"openid,omitempty" doc:"Whose ID tokens the Runner exchanges for certificates. certificate and key are empty then."`
}

// Variables are the environment of a job that exchanges ID tokens, as lines NAME=VALUE. They are no
// secrets.
func (m *MadeRunner) Variables() string {
	lines := login.EnvControlPlane + "=" + m.ControlPlane + "\n" + login.EnvRunner + "=" + m.Runner + "\n"
	if cas := trustanchor.Parse([]byte(m.CA)); len(cas) > 0 {
		lines += login.EnvFingerprint + "=" + trustanchor.Fingerprint(cas[0]) + "\n"
	}
	if m.OpenID.Audience != m.ControlPlane {
		lines += login.EnvAudience + "=" + m.OpenID.Audience + "\n"
	}
	return lines
}
