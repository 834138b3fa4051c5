package command

import (
	"context"
	_ "embed"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/httpserver"
)

//go:embed sample.html
var samplePage []byte

// sampleTimeout bounds a request of the sample App, and sampleDrain the last ones when it stops.
const (
	sampleTimeout = 10 * time.Second
	sampleDrain   = 5 * time.Second
)

// newSample returns the command that is a first App. install.sh server deploys it from the agent's
// image, which the cluster has already, also without internet.
func newSample() *cobra.Command {
	var listen string
	cmd := &cobra.Command{
		Use:   "sample",
		Short: "Serve the page of a sample App",
		Long:  "Serve one page over HTTP, as a sample App. `install.sh server` deploys it.",
		Args:  cli.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signals(cmd.Context())
			defer stop()
			return serveSample(ctx, listen)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", ":8080", "listen address")
	return cmd
}

func serveSample(ctx context.Context, listen string) error {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	srv := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
			_, _ = w.Write(samplePage)
		}),
		ReadHeaderTimeout: sampleTimeout, ReadTimeout: sampleTimeout, WriteTimeout: sampleTimeout, IdleTimeout: time.Minute,
	}
	return httpserver.Run(ctx, srv, ln, httpserver.Stop{Drain: sampleDrain})
}
