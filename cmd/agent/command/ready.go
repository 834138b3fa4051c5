package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
)

// newReady returns the command for health checks where there is neither a shell nor curl.
func newReady() *cobra.Command {
	var url string
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "ready",
		Short: "Check whether a running agent is ready",
		Long: "Check whether a running agent is ready: it is registered, its tunnel is up and it has\n" +
			"read its Apps.",
		Args: cli.ExactArgs(),
		Example: `  pipeops-agent ready
  pipeops-agent ready --url http://10.1.2.3:8080 --wait 60s`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			version, err := awaitReady(cmd.Context(), url, wait)
			if err == nil {
				err = cli.Print(cmd.OutOrStdout(), "ready, version "+version)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&url, "url", "http://localhost:8080", "URL of the agent's health port (PIPEOPS_HEALTH_ADDRESS)")
	cli.DurationVar(cmd.Flags(), &wait, "wait", 0, "how long to retry while the agent is not ready")
	return cmd
}

// awaitReady returns the version and, on its own line, what is wrong although the agent is
// ready.
func awaitReady(ctx context.Context, url string, wait time.Duration) (version string, err error) {
	question, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz", nil)
	if err != nil {
		return "", wrong(fmt.Errorf("--url: %w (fix: write it as http://HOST:PORT)", err))
	}
	err = cli.AwaitReady("the agent", question, wait, nil, func(resp *http.Response) error {
		var answer struct{ Version, Detail, Degraded string }
		if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
			return fmt.Errorf("%s is not an agent's health port: %w (fix: correct --url)", url, err)
		}
		version = answer.Version
		switch {
		case resp.StatusCode == http.StatusOK && answer.Degraded != "":
			version += "\ndegraded: " + answer.Degraded
		case resp.StatusCode == http.StatusOK:
		case answer.Detail != "":
			return errors.New(answer.Detail + " (fix: see the agent's log)")
		default:
			return fmt.Errorf("the agent answers %s (fix: see its log)", resp.Status)
		}
		return nil
	})
	return version, err
}
