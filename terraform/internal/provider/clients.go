package provider

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/login"
)

// callTimeout bounds what a resource of the operator API does.
const callTimeout = 2 * time.Minute

// errUnknown is for credentials that another resource has yet to make.
var errUnknown = errors.New("the credentials are not known yet")

// clients are what resources call. A client opens when it is first used: a configuration may have
// resources of one API alone.
type clients struct {
	version  string
	agent    string // of Apps that name none
	operator func() (*operatorapi.Client, error)
	runner   func(context.Context) (*login.Login, error)
}

func newClients(version string, s settings) *clients {
	return &clients{
		version: version, agent: orEnvironment(s.Agent, envAgent),
		operator: sync.OnceValues(func() (*operatorapi.Client, error) { return openOperator(version, s) }),
		runner:   onceOpened(func(ctx context.Context) (*login.Login, error) { return openRunner(ctx, s) }),
	}
}

// onceOpened opens a login for the first caller. One that failed is opened again by the next.
func onceOpened(open func(context.Context) (*login.Login, error)) func(context.Context) (*login.Login, error) {
	var mu sync.Mutex
	var opened *login.Login
	return func(ctx context.Context) (*login.Login, error) {
		mu.Lock()
		defer mu.Unlock()
		if opened != nil {
			return opened, nil
		}
		l, err := open(ctx)
		if err == nil {
			opened = l
		}
		return l, err
	}
}

func openOperator(version string, s settings) (*operatorapi.Client, error) {
	var renewal operatorapi.Renewal
	var creds administration.Credentials
	var err error
	switch file := orEnvironment(s.OperatorFile, envOperator); {
	case s.Operator.IsUnknown() || s.OperatorFile.IsUnknown():
		return nil, errUnknown
	case !s.Operator.IsNull():
		creds, err = administration.ParseCredentials([]byte(s.Operator.ValueString()))
	case file != "":
		creds, err = administration.LoadCredentials(file)
		renewal.Save = func(renewed administration.Credentials) error { return renewed.Replace(file) }
		renewal.Note = func(err error) { tflog.Warn(context.Background(), err.Error()) }
	default:
		return nil, errors.New("there are no credentials of an operator (fix: set operator_credentials_file of the provider, or " + envOperator + ")")
	}
	if err != nil {
		return nil, err
	}
	c, err := operatorapi.NewClient(creds, version)
	if err == nil && renewal.Save != nil {
		c.Renewing(renewal)
	}
	return c, err
}

func openRunner(ctx context.Context, s settings) (*login.Login, error) {
	note := func(err error) { tflog.Warn(context.Background(), err.Error()) }
	switch file := orEnvironment(s.RunnerFile, envRunner); {
	case s.Runner.IsUnknown() || s.RunnerFile.IsUnknown():
		return nil, errUnknown
	case !s.Runner.IsNull():
		creds, err := credentials.Parse([]byte(s.Runner.ValueString()))
		if err != nil {
			return nil, err
		}
		return login.New(login.Config{Credentials: creds, Note: note})
	case file != "":
		return login.Open(file, note)
	case os.Getenv(login.EnvRunner) != "":
		exchange := login.EnvironmentExchange()
		creds, err := exchange.Credentials(ctx)
		if err != nil {
			return nil, err
		}
		return login.New(login.Config{Credentials: creds, Note: note, Token: exchange.Token, Audience: exchange.Audience})
	}
	return nil, errors.New("there are no credentials of a Runner (fix: set runner_credentials_file of the provider, or " + envRunner + ")")
}

// agents returns the Runner's client of the control plane.
func (c *clients) agents(ctx context.Context) (*login.Login, *announce.SnapshotClient, error) {
	l, err := c.runner(ctx)
	if err != nil {
		return nil, nil, err
	}
	return l, &announce.SnapshotClient{BaseURL: l.Credentials().ControlPlane, HTTPClient: l.HTTPClient()}, nil
}

// on calls do with a client of an agent.
func (c *clients) on(ctx context.Context, nameOrID string, do func(context.Context, *client.Client) error) error {
	l, control, err := c.agents(ctx)
	if err != nil {
		return err
	}
	agent, err := control.Agent(ctx, nameOrID)
	if err != nil {
		return noAgentError{err}
	}
	config := l.Reach(agent)
	config.UserAgent = "terraform-provider-pipeops/" + c.version
	reached, err := client.New(config)
	if err != nil {
		return err
	}
	defer reached.Close()
	return do(ctx, reached)
}

// noAgentError is of an agent that was not found: nothing is known about its Apps.
type noAgentError struct{ error }

func (e noAgentError) Unwrap() error { return e.error }

// configured takes what Configure of the provider made; nil before that.
func configured(data any, diags *diag.Diagnostics) *clients {
	if data == nil {
		return nil
	}
	c, ok := data.(*clients)
	if !ok {
		diags.AddError("Provider data of another type", "This is a bug of the provider.")
	}
	return c
}
