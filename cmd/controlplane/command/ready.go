package command

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/controlplane/flags"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
)

// ready is the subcommand for health checks where there is neither a shell nor curl.
type ready struct {
	*app
	url            string
	anyCertificate bool
	wait           time.Duration
}

func newReady(a *app) *cobra.Command {
	r := &ready{app: a}
	cmd := &cobra.Command{
		Use:   "ready",
		Short: "Check whether a running control plane is ready",
		Long:  "Check whether a running control plane is ready, and print the result of each check.",
		Example: `  pipeops-controlplane ready --data-dir ./data
  pipeops-controlplane ready --url https://cp.example.com:8443 --any-certificate --wait 60s`,
		Args: cli.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error { return r.run(cmd.Context()) },
	}
	r.addAddress(cmd)
	cli.DurationVar(cmd.Flags(), &r.wait, "wait", 0, "how long to retry while the control plane is not ready")
	return cmd
}

func (r *ready) addAddress(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&r.url, "url", "https://localhost:8443", "URL of the control plane's API")
	f.BoolVar(&r.anyCertificate, "any-certificate", false, "do not verify the certificate with the CA in the data directory, like a Kubernetes probe")
}

// tlsConfig verifies the control plane by the CA in the data directory.
func (r *ready) tlsConfig() (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: r.anyCertificate} //nolint:gosec // nothing secret is sent, and the answer is for eyes
	if r.anyCertificate {
		return cfg, nil
	}
	file := datadir.FileCA
	if d := (datadir.Data{Dir: r.data.Dir}); !d.Has(file) && d.Has(datadir.FileTrust) { // the CA is in the database
		file = datadir.FileTrust
	}
	pool, err := flags.LoadCAs("the control plane's CA", filepath.Join(r.data.Dir, file))
	if err != nil {
		return nil, fmt.Errorf("%w (fix: name the directory that it serves from with --data-dir, or add --any-certificate)", err)
	}
	cfg.RootCAs = pool
	return cfg, nil
}

func (r *ready) run(ctx context.Context) error {
	cfg, err := r.tlsConfig()
	if err != nil {
		return err
	}
	question, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+"/readyz", nil)
	if err != nil {
		return cli.Usage(fmt.Errorf("--url: %w; write it as https://HOST:PORT", err))
	}
	return cli.AwaitReady("the control plane", question, r.wait, cfg, r.read)
}

func printChecks(w io.Writer, checks map[string]string) {
	names, width := slices.Sorted(maps.Keys(checks)), 0
	for _, name := range names {
		width = max(width, len(name))
	}
	for _, name := range names {
		cli.Say(w, "%-*s  %s", width, cli.Printable(name), cli.Printable(checks[name]))
	}
}

// read prints the checks of a control plane that is ready.
func (r *ready) read(resp *http.Response) error {
	var answer struct {
		Ready  bool
		Checks map[string]string
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || len(answer.Checks) == 0 {
		return fmt.Errorf("%s is not a control plane's API (fix: correct --url)", r.url)
	}
	if answer.Ready {
		printChecks(r.out, answer.Checks)
		return nil
	}
	var failed []string
	for _, name := range slices.Sorted(maps.Keys(answer.Checks)) {
		if strings.HasPrefix(answer.Checks[name], "failed") {
			failed = append(failed, name+" "+answer.Checks[name])
		}
	}
	return errors.New("not ready: " + strings.Join(failed, "; ") + " (fix: see its log)")
}
