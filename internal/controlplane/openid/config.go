package openid

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/authn"
	"github.com/pipeops/pipeops-vm-agent/internal/idtoken"
	"github.com/pipeops/pipeops-vm-agent/internal/tlsfiles"
)

// The defaults of Config.
const (
	DefaultNameClaim   = "email"
	DefaultGroupsClaim = "groups"
)

// DefaultScopes are requested beside openid.
var DefaultScopes = []string{"email", "profile", "groups"}

// Config is how operators sign in. The zero value means that they do not.
type Config struct {
	// Issuer is the URL of the identity provider, as it is in its ID tokens.
	Issuer                 string
	ClientID, ClientSecret string
	// Reread returns the client's secret as it is now; nil if it does not change.
	Reread func() (string, error)
	// TLS has the CAs of all issuers of ID tokens; nil means the machine's.
	TLS tlsfiles.Source
	// NameClaim is the claim of the ID token that becomes the operator's name, and GroupsClaim the
	// one with the groups.
	NameClaim, GroupsClaim string
	// Scopes are requested beside openid.
	Scopes []string
	// Roles are operators' roles by group.
	Roles map[string]string
}

// Given reports whether operators sign in by OpenID Connect.
func (c *Config) Given() bool { return c.Issuer != "" }

// secret returns the client's secret as it is now.
func (c *Config) secret() (string, error) {
	if c.Reread == nil {
		return c.ClientSecret, nil
	}
	return c.Reread()
}

// Validate reports what is wrong, by flag.
func (c *Config) Validate(bad func(format string, args ...any)) {
	if !c.Given() {
		if c.ClientID != "" || len(c.Roles) > 0 {
			bad("--openid-issuer: is missing; give the URL of the identity provider, or leave out the other flags that begin with --openid")
		}
		return
	}
	if !idtoken.ValidIssuer(c.Issuer) {
		bad("--openid-issuer: %q is not https://HOST[:PORT][/PATH], as the identity provider's ID tokens have it in iss", c.Issuer)
	}
	if c.ClientID == "" {
		bad("--openid-client-id: is missing; give the ID under which the identity provider knows this control plane")
	}
	if c.ClientSecret == "" {
		bad("--openid-client-secret-file: is missing; name a file with the client's secret, or set PIPEOPS_OPENID_CLIENT_SECRET")
	}
	for flag, claim := range map[string]string{"--openid-name-claim": c.NameClaim, "--openid-groups-claim": c.GroupsClaim} {
		if claim == "" {
			bad("%s: is empty; name a claim of the ID token, or leave it out for the default", flag)
		}
	}
	if len(c.Roles) == 0 {
		bad("--openid-role: is missing, so no one could sign in; give GROUP=ROLE, for example platform-team=operator")
	}
	for group, role := range c.Roles {
		if group == "" || !slices.Contains(authn.Roles, role) {
			bad("--openid-role: %q is not GROUP=ROLE; roles are %s", group+"="+role, strings.Join(authn.Roles, ", "))
		}
	}
}

// Digest changes with what decides who may sign in, and with which role. Sessions end with it.
func (c *Config) Digest() string {
	text, err := json.Marshal([]any{c.Issuer, c.ClientID, c.NameClaim, c.GroupsClaim, c.Roles})
	if err != nil { // it is text alone
		panic(err)
	}
	sum := sha256.Sum256(text)
	return "openid:" + hex.EncodeToString(sum[:])
}

// role returns the greatest role of some groups; empty for none.
func (c *Config) role(groups []string) (role string) {
	for _, group := range groups {
		if found := c.Roles[group]; authn.Includes(found, role) {
			role = found
		}
	}
	return role
}

// mapped lists the groups with a role.
func (c *Config) mapped() string {
	groups := make([]string, 0, len(c.Roles))
	for group := range c.Roles {
		groups = append(groups, group)
	}
	slices.Sort(groups)
	return strings.Join(groups, ", ")
}
