package flags

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/openid"
)

// OpenID describes how operators sign in to the console by OpenID Connect.
type OpenID struct {
	cfg                openid.Config
	secretFile, caFile string
	roles              []string
}

// Add adds the flags. The client's secret is never an argument: every user of the machine can read
// a command line.
func (o *OpenID) Add(f *pflag.FlagSet) {
	f.StringVar(&o.cfg.Issuer, "openid-issuer", "", "URL of the OpenID Connect provider by which operators sign in to the console; empty for none")
	f.StringVar(&o.cfg.ClientID, "openid-client-id", "", "ID of this control plane at the OpenID Connect provider")
	f.StringVar(&o.secretFile, "openid-client-secret-file", "", "file with the client's secret, read at each sign-in (default: the variable "+EnvOpenIDSecret+")")
	f.StringVar(&o.caFile, "openid-ca", "", "file with the CAs of the OpenID Connect provider, and of issuers of ID tokens of Runners, in addition to the machine's CAs; read again when it changes")
	f.StringVar(&o.cfg.NameClaim, "openid-name-claim", openid.DefaultNameClaim, "claim of the ID token with the operator's name; email must be verified")
	f.StringVar(&o.cfg.GroupsClaim, "openid-groups-claim", openid.DefaultGroupsClaim, "claim of the ID token with the operator's groups")
	f.StringSliceVar(&o.cfg.Scopes, "openid-scope", openid.DefaultScopes, "scopes to request beside openid, separated by commas")
	f.StringSliceVar(&o.roles, "openid-role", nil, "role of a group, GROUP=viewer, GROUP=operator or GROUP=admin; may be repeated. Quote an entry that has commas")
}

// Config returns what the flags and the environment say.
func (o *OpenID) Config() (openid.Config, error) {
	var errs []error
	cfg := o.cfg
	cfg.ClientSecret = os.Getenv(EnvOpenIDSecret)
	if o.secretFile != "" {
		cfg.Reread = func() (string, error) { return ReadSecret("--openid-client-secret-file", o.secretFile) }
		secret, err := cfg.Reread()
		errs = append(errs, err)
		cfg.ClientSecret = secret
	}
	cfg.Roles = map[string]string{}
	for _, entry := range o.roles {
		at := strings.LastIndex(entry, "=") // a group of LDAP has such signs itself
		if at < 0 {
			errs = append(errs, fmt.Errorf("--openid-role: %q is not GROUP=ROLE, for example platform-team=operator", entry))
			continue
		}
		group, role := entry[:at], entry[at+1:]
		if before, twice := cfg.Roles[group]; twice && before != role {
			errs = append(errs, fmt.Errorf("--openid-role: the group %q has two roles, %s and %s; give one", group, before, role))
		}
		cfg.Roles[group] = role
	}
	var err error
	cfg.TLS, err = moreCAs("--openid-ca", o.caFile)
	errs = append(errs, err)
	return cfg, errors.Join(errs...)
}
