package command

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/proxy"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// versions are those of this program and of the control plane that it manages.
type versions struct {
	cli.Version
	ControlPlane *cli.ServerVersion `json:"controlPlane,omitempty"`
}

func newVersion(a *app) *cobra.Command {
	var out cli.Output
	var client bool
	r := &ready{app: a}
	found := versions{Version: cli.VersionOf("pipeops-controlplane", version, commit)}
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the versions of this program and of the running control plane",
		Long: `Show the version of this program and of the running control plane: the one of the credentials, or
else the one at --url.

If the control plane cannot be reached, one line says so, and the exit code is 0.`,
		Example: `  pipeops-controlplane version -o json
  pipeops-controlplane version --credentials alice.json`,
		Args: cli.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !client {
				url, number, err := r.serverVersion(cmd)
				found.ControlPlane = cli.NewServerVersion(url, number, err)
			}
			return out.Write(a.out, found, func(w io.Writer) { sayVersions(w, found) })
		},
	}
	out.Add(cmd)
	r.addAddress(cmd)
	cmd.Flags().BoolVar(&client, "client", false, "show the version of this program only")
	return cmd
}

func sayVersions(w io.Writer, v versions) {
	v.Say(w)
	if v.ControlPlane != nil {
		v.ControlPlane.Say(w)
	}
}

// versionTimeout is for one answer.
const versionTimeout = 5 * time.Second

// serverVersion asks the control plane of the credentials, or else the one at the URL.
func (r *ready) serverVersion(cmd *cobra.Command) (url, number string, err error) {
	file, err := r.operator.File(cmd)
	if err != nil {
		return "", "", err
	}
	var cfg *tls.Config
	if file != "" {
		credentials, err := administration.LoadCredentials(file)
		if err != nil {
			return "", "", err
		}
		r.url = credentials.ControlPlane
		if cfg, err = credentials.TLSConfig(); err != nil {
			return r.url, "", err
		}
	} else if cfg, err = r.tlsConfig(); err != nil {
		return r.url, "", err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), versionTimeout)
	defer cancel()
	transport := proxy.FromEnvironment().Use(&http.Transport{DisableKeepAlives: true, TLSClientConfig: cfg})
	number, err = (&announce.SnapshotClient{BaseURL: r.url, HTTPClient: &http.Client{Transport: transport}}).Version(ctx)
	if err != nil && file == "" {
		err = fmt.Errorf("%w (fix: see whether it runs, and name the address at which it listens with --url)", err)
	}
	return r.url, number, err
}
