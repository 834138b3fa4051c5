// Command certmanager is cert-manager's controller, webhook, cainjector and solver of HTTP-01
// challenges, by the name under which it is called. Upstream's main packages cannot be downloaded:
// they are in separate modules. This one starts the same packages of upstream's module, for
// issuers of ACME, a CA and self-signed ones. It has no leader election, which is for several
// replicas, and no metrics.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/cert-manager/cert-manager/pkg/issuer/acme/http/solver"
	logf "github.com/cert-manager/cert-manager/pkg/logs"
	"github.com/spf13/pflag"
	"k8s.io/component-base/logs"
	ctrl "sigs.k8s.io/controller-runtime"
)

var programs = map[string]func(ctx context.Context, args []string) error{
	"controller": runController, "webhook": runWebhook, "cainjector": runInjector, "acmesolver": runSolver,
}

func main() {
	name := filepath.Base(os.Args[0])
	run, known := programs[name]
	if !known {
		fmt.Fprintf(os.Stderr, "%s is not a program of cert-manager\n", name)
		os.Exit(2)
	}
	logs.InitLogs()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	log := logf.Log.WithName(name)
	ctrl.SetLogger(log)
	err := run(logf.NewContext(ctx, log), os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// flags returns a set with those that charts give to all programs.
func flags() *pflag.FlagSet {
	fs := pflag.NewFlagSet("cert-manager", pflag.ContinueOnError)
	fs.Int("v", 0, "log level")
	fs.String("leader-election-namespace", "", "unused")
	return fs
}

func runSolver(ctx context.Context, args []string) error {
	s := &solver.HTTP01Solver{}
	fs := flags()
	fs.IntVar(&s.ListenPort, "listen-port", 8089, "port to listen on")
	fs.StringVar(&s.Domain, "domain", "", "host of the challenge")
	fs.StringVar(&s.Token, "token", "", "the challenge's token")
	fs.StringVar(&s.Key, "key", "", "the answer")
	if err := fs.Parse(args); err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = s.Shutdown(context.Background()) })
	return s.Listen(logf.FromContext(ctx))
}
