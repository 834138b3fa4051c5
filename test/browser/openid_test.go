package browser_test

import (
	"crypto/x509"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/openid"
	"github.com/pipeops/pipeops-vm-agent/internal/tlsfiles"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/browser"
	"github.com/pipeops/pipeops-vm-agent/test/dex"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// TestConsole_SignInAtDex has a browser's own rules about cookies and redirects between sites.
func TestConsole_SignInAtDex(t *testing.T) {
	suite.Release(t, "sign-in to the console at dex, in a real Chromium")
	d := dex.New(t)
	roots := x509.NewCertPool()
	roots.AddCert(d.Certificate)
	o := newOffice(t, func(c *controlplane.Config) {
		c.OpenID = openid.Config{
			Issuer: d.Issuer, ClientID: "console", ClientSecret: "secret", TLS: tlsfiles.Fixed(roots),
			NameClaim: openid.DefaultNameClaim, GroupsClaim: openid.DefaultGroupsClaim, Scopes: openid.DefaultScopes,
			Roles: map[string]string{dex.Group: administration.RoleAdmin},
		}
	})
	b := browser.Open(t, chromedp.Flag("ignore-certificate-errors", true))
	b.Visit(o.site+"/sign-in", "h1")
	assert.Contains(t, b.Text(), "cannot be used")
	b.Accessible("provider-away")
	b.Picture("console-provider-away")
	d.Start("console", "secret", o.site+"/sign-in/return")

	b.Visit(o.site+"/", "#code")
	b.Accessible("sign-in-at-provider")
	b.Picture("console-sign-in-at-provider")
	o.Clock.Advance(3 * time.Second)
	b.Click(`//a[contains(text(), "Sign in at")]`)
	await.Until(t, "the console opens by itself", func() bool {
		return browser.Get(b, chromedp.Location()) == o.site+"/"
	})
	b.Visit(o.site+"/operators", "h1")
	assert.Contains(t, b.Text(), "openid/"+dex.Email+", admin")
	b.Follow(`//button[text()="Sign out"]`)
	b.Visit(o.site+"/operators", "#code")
}
