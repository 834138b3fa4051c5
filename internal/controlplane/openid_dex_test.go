package controlplane

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operators"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
	"github.com/pipeops/pipeops-vm-agent/internal/web/console"
	"github.com/pipeops/pipeops-vm-agent/test/dex"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// TestOpenID_SignInAtDex: Dex starts after the control plane.
func TestOpenID_SignInAtDex(t *testing.T) {
	suite.Release(t, "sign-in to the console at dex, an OpenID provider")
	d := dex.New(t)
	p := start(t, func(c *Config) {
		c.OpenID = openIDSettings(d.Issuer, d.Certificate)
		c.OpenID.Roles = map[string]string{dex.Group: operators.RoleAdmin}
	})
	b := p.browserFor(d.Certificate)
	status, body := b.get("/console/sign-in")
	assert.Equal(t, http.StatusServiceUnavailable, status)
	assert.Contains(t, body, "cannot be used")
	d.Start(openIDClient, openIDSecret, p.Advertised().API+"/console"+web.ReturnPath)
	p.clock.forward(3 * time.Second)

	back := b.stopAtReturn()
	_, _ = b.get("/console/sign-in")
	kept := b.loginSecret()
	require.NotEmpty(t, kept)
	status, body = b.get(*back)
	require.Equal(t, http.StatusOK, status, body)
	_, body = b.get("/console/operators")
	assert.Contains(t, body, "openid/"+dex.Email+", admin")

	again := p.browserFor(d.Certificate)
	again.keep(kept)
	status, body = again.get(*back)
	assert.Equal(t, http.StatusUnauthorized, status, "dex takes no code twice")
	assert.Contains(t, body, "refused the code")
	assert.Empty(t, again.kept(console.Cookie))
}
