package cmdutil

import (
	"context"
	"os"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	kept "github.com/pipeops/pipeops-vm-agent/runnerapi/login"
)

// exchanges reports whether the credentials are those for the job's ID token: PIPEOPS_RUNNER names
// the Runner, and nothing names other credentials.
func (d *Defaults) exchanges() bool {
	return os.Getenv(kept.EnvRunner) != "" && d.Credentials == "" && os.Getenv(EnvCredentials) == "" && d.ContextNamed() == ""
}

// loginByToken exchanges the job's ID token once for the whole command: a token is good for one
// key.
func (a *CLI) loginByToken(ctx context.Context) (*Login, error) {
	if a.exchanged == nil {
		creds, err := a.Exchange(ctx, kept.EnvironmentExchange())
		if err != nil {
			return nil, err
		}
		a.exchanged = &creds
	}
	return a.loginWith(*a.exchanged, "", nil)
}

// Exchange gets credentials for an ID token, and retries for as long as patience lasts.
func (a *CLI) Exchange(ctx context.Context, from kept.Exchange) (creds credentials.Credentials, err error) {
	if err := from.Validate(); err != nil {
		return creds, &ExitError{Err: err, Code: ExitUsage}
	}
	token, err := from.Token(ctx, from.Want())
	if err != nil {
		return creds, &ExitError{Err: err, Code: ExitUsage}
	}
	from.Token = func(context.Context, string) (string, error) { return token, nil }
	l := &Login{Credentials: credentials.Credentials{ControlPlane: from.ControlPlane}, streams: a.Streams, patience: a.Patience}
	defer l.streams.reportSlow(ctx, "exchange-id-token")()
	err = l.patiently(ctx, func(ctx context.Context) (err error) {
		creds, err = from.Credentials(ctx)
		return err
	})
	return creds, err
}
