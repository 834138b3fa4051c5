package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
)

const (
	readyTimeout   = 5 * time.Second // for one answer
	readyInterval  = time.Second     // between two questions
	maxReadyAnswer = 64 << 10
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
		Args: cobra.NoArgs,
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
	cmd.Flags().DurationVar(&wait, "wait", 0, "how long to retry while the agent is not ready")
	return cmd
}

// awaitReady asks until the agent is ready or the time is over; the error is
// then the last answer.
func awaitReady(ctx context.Context, url string, wait time.Duration) (version string, err error) {
	client := &http.Client{Timeout: readyTimeout, Transport: &http.Transport{DisableKeepAlives: true}} // and no proxy
	asking, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		if version, err = askReady(ctx, client, url); err == nil || errors.Is(err, errUsage) {
			return version, err
		}
		if !retry.Wait(asking, readyInterval) {
			return "", err
		}
	}
}

// askReady returns the version and, on a line of its own, what is amiss although the agent is
// ready.
func askReady(ctx context.Context, client *http.Client, url string) (version string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz", nil)
	if err != nil {
		return "", wrong(fmt.Errorf("--url: %w (fix: write it as http://HOST:PORT)", err))
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", fmt.Errorf("the agent does not answer: %w (fix: see whether it runs, and its log)", err)
	}
	defer func() { _ = resp.Body.Close() }()
	var answer struct{ Version, Detail, Degraded string }
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxReadyAnswer)).Decode(&answer); err != nil {
		return "", fmt.Errorf("%s is not an agent's health port: %w (fix: correct --url)", url, err)
	}
	switch {
	case resp.StatusCode == http.StatusOK && answer.Degraded != "":
		return answer.Version + "\ndegraded: " + answer.Degraded, nil
	case resp.StatusCode == http.StatusOK:
		return answer.Version, nil
	case answer.Detail != "":
		return "", errors.New(answer.Detail + " (fix: see the agent's log)")
	}
	return "", fmt.Errorf("the agent answers %s (fix: see its log)", resp.Status)
}
