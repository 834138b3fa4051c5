package command

import (
	"context"
	"errors"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/controlplane/flags"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
)

// work is what a command does by the operator API.
type work func(ctx context.Context, admin operatorapi.Target) error

// admin carries out a command by the operator API: with credentials, or at the socket of the
// control plane that serves the data directory. With --offline it works on the directory itself,
// which has to exist.
func (a *app) admin(cmd *cobra.Command, do work) error {
	if a.operator.Offline() {
		return a.offline(cmd, administration.Open, do)
	}
	return a.online(cmd, do)
}

// firstAdmin is like admin for a command that makes sense before the first start of serve: with
// --offline, it creates the data directory, and reports that.
func (a *app) firstAdmin(cmd *cobra.Command, do work) error {
	if !a.operator.Offline() {
		return a.online(cmd, do)
	}
	dir := datadir.Data{Dir: a.data.Dir}
	if dir.Made() {
		return a.offline(cmd, administration.Make, do)
	}
	return a.offline(cmd, administration.Make, func(ctx context.Context, admin operatorapi.Target) error {
		has := "a database and a CA"
		if dir.Elsewhere() {
			has = "a CA"
		}
		a.say("%s was not a control plane's data directory; it has %s now, for `pipeops-controlplane serve --data-dir %s`", dir.Dir, has, dir.Dir)
		return do(ctx, admin)
	})
}

func (a *app) online(cmd *cobra.Command, do work) error {
	if err := flags.OfflineOnly(cmd); err != nil {
		return err
	}
	file, err := a.operator.File(cmd)
	if err != nil {
		return err
	}
	if file != "" {
		return a.remotely(cmd.Context(), file, do)
	}
	return a.here(cmd.Context(), do)
}

// remotely calls the operator API with credentials.
func (a *app) remotely(ctx context.Context, file string, do work) error {
	credentials, err := administration.LoadCredentials(file)
	if err != nil {
		return cli.Usage(err)
	}
	client, err := operatorapi.NewClient(credentials, version)
	if err != nil {
		return err
	}
	client.Renewing(operatorapi.Renewal{
		Save: func(renewed administration.Credentials) error { return renewed.Replace(file) },
		Note: func(err error) { a.say("warning: %v", err) },
	})
	return errors.Join(do(ctx, client), client.Close())
}

// here calls the control plane that serves the data directory, at its socket.
func (a *app) here(ctx context.Context, do work) error {
	data := datadir.Data{Dir: a.data.Dir}
	first, err := data.DialSocket(ctx) // the client would try again and again
	if _, none := errors.AsType[datadir.NoCredentialsError](err); none {
		return cli.Usage(err)
	}
	if err != nil {
		return err
	}
	if err := first.Close(); err != nil {
		return err
	}
	client := operatorapi.NewSocketClient(data.DialSocket, version)
	return errors.Join(do(ctx, client), client.Close())
}

// opens is how a command opens the data directory.
type opens func(context.Context, datadir.Data, func() time.Time) (*administration.Admin, error)

// offline works on the data in this process, as serve would, and says so.
func (a *app) offline(cmd *cobra.Command, open opens, do work) error {
	if a.operator.Given() {
		return cli.Usage(errors.New("--offline: works on the data directory itself; leave out --credentials and --context, or --offline"))
	}
	a.say("offline: working on the data directory %s itself", a.data.Dir)
	return a.open(cmd, open, func(ctx context.Context, admin *administration.Admin) error {
		log := zerolog.New(zerolog.ConsoleWriter{Out: a.err, NoColor: true}).Level(zerolog.WarnLevel)
		local := operatorapi.NewLocal(admin.With(a.settings), log) //nolint:contextcheck // its audit log is written until Close
		return errors.Join(do(ctx, local), local.Close())
	})
}

// rescue opens the data directory for a command that needs no control plane.
func (a *app) rescue(cmd *cobra.Command, do func(ctx context.Context, admin *administration.Admin) error) error {
	if a.operator.Given() {
		return cli.Usage(errors.New("--credentials and --context: this command works on the data directory alone; run it on the control plane's machine"))
	}
	return a.open(cmd, administration.Open, func(ctx context.Context, admin *administration.Admin) error {
		return errors.Join(do(ctx, admin), admin.Close())
	})
}

func (a *app) open(cmd *cobra.Command, open opens, do func(ctx context.Context, admin *administration.Admin) error) error {
	data, err := a.data.Read()
	if err != nil {
		return err
	}
	admin, err := open(cmd.Context(), data, nil)
	if err != nil {
		return err
	}
	return do(cmd.Context(), admin)
}
