package controlplane

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/authn"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
	"github.com/pipeops/pipeops-vm-agent/internal/web/console"
)

// consoleLooks is how often the console looks for changes, where the database does not report them.
const consoleLooks = 300 * time.Millisecond

// openConsole prepares the pages for operators. The store is that of the operator API.
func (c *ControlPlane) openConsole(s *store.Store) (err error) {
	home, err := url.Parse(c.consoleURL())
	if err != nil {
		return err
	}
	elsewhere, visiting := c.openIDSignIn(home)
	c.console, err = console.New(console.Options{
		Elsewhere: elsewhere, Visitors: visiting, Logs: c.operators.Logs, Broker: len(c.cfg.BrokerURLs) > 0,
		ReadsApps: func(ctx context.Context) error {
			_, err := c.operators.ReadsApps(ctx)
			return err
		},
		API: c.operators.Within(), Sessions: consoleSessions{c.authn}, Place: home.Host,
		Hosts: func(host string) bool { return host == home.Host || c.cfg.servesHost(host) }, Version: c.cfg.Version, Now: c.cfg.Now,
		Watch: func(ctx context.Context, changed func()) error { return s.Watch(ctx, consoleLooks, changed) },
	})
	c.api.console = c.console
	return err
}

// consoleURL returns the address of the console, as browsers should have it.
func (c *ControlPlane) consoleURL() string { return c.publicURL() + operatorapi.ConsolePath }

// publicURL returns the address for those who do not have our CA: of the console's host at the
// gateway, if there is one.
func (c *ControlPlane) publicURL() string {
	if !c.cfg.Gateway.Console {
		return c.cfg.AdvertiseAPI
	}
	at := "https://" + consoleLabel + c.cfg.Gateway.Domain
	if p := publicPort(&c.cfg, c.listeners.https); p != defaultHTTPS {
		at += ":" + strconv.Itoa(p)
	}
	return at
}

// defaultHTTPS is the port that URLs of https leave out.
const defaultHTTPS = 443

// consoleSessions keeps the sessions in the database, so that any of several control planes serves
// them.
type consoleSessions struct{ authn *authn.Authenticator }

var _ web.Keeper = consoleSessions{}

// Enter implements web.Keeper.
func (k consoleSessions) Enter(ctx context.Context, code string) (*web.Session, error) {
	id, _, err := k.authn.EnterConsole(ctx, code)
	if err != nil {
		return nil, unlessMissing(err)
	}
	return k.Find(ctx, id)
}

// Find implements web.Keeper.
func (k consoleSessions) Find(ctx context.Context, id string) (*web.Session, error) {
	kept, operator, err := k.authn.ConsoleSession(ctx, id)
	if err != nil {
		return nil, unlessMissing(err)
	}
	certificate := kept.Serial
	if kept.Role != "" { // by OpenID Connect
		certificate = ""
	}
	return web.NewSession(id, operator.Name+", "+operator.Role, console.Visitor{
		Operator: operator,
		Identify: func(ctx context.Context) (operatorapi.Caller, error) {
			known, err := k.authn.OperatorOfConsole(ctx, kept)
			return operatorapi.Caller{Operator: known, Certificate: certificate, Proven: known.Name}, err
		},
	}), nil
}

// End implements web.Keeper.
func (k consoleSessions) End(ctx context.Context, id string) error {
	return k.authn.LeaveConsole(ctx, id)
}

// unlessMissing returns nil for what is not there.
func unlessMissing(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

// toConsole redirects a browser that opens the control plane's address.
func toConsole(w http.ResponseWriter, r *http.Request) {
	http.Redirect(w, r, operatorapi.ConsolePath+"/", http.StatusSeeOther)
}
