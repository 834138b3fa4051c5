package access

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
)

// execAPIVersion is of kubectl's credential plugins (client.authentication.k8s.io).
const execAPIVersion = "client.authentication.k8s.io/v1"

// followPatience is what a kubectl waits at most for the control plane, which it does not need.
const followPatience = time.Second

// execCredential is what a credential plugin prints.
type execCredential struct {
	APIVersion string               `json:"apiVersion"`
	Kind       string               `json:"kind"`
	Status     execCredentialStatus `json:"status"`
}

type execCredentialStatus struct {
	Expiration  time.Time `json:"expirationTimestamp"`
	Certificate string    `json:"clientCertificateData"`
	Key         string    `json:"clientKeyData"`
}

// NewKubeCredential returns the command kube-credential.
func NewKubeCredential(a *cmdutil.CLI) *cobra.Command {
	return &cobra.Command{
		Use:   "kube-credential",
		Short: "Print the Runner's certificate for kubectl",
		Long: `Print the Runner's certificate and its key in the format of a kubectl credential plugin. The
output is as secret as the credentials file.

kubectl runs this command by itself, because a kubeconfig of pipeops-runner kubeconfig names it.
Like any other command, it renews the certificate when that is due, if the control plane is
reachable.`,
		Example: "  pipeops-runner kube-credential | jq -r .status.expirationTimestamp",
		Args:    cli.ExactArgs(),
		RunE:    func(cmd *cobra.Command, _ []string) error { return kubeCredential(cmd.Context(), a) },
	}
}

func kubeCredential(ctx context.Context, a *cmdutil.CLI) error {
	l, err := a.Login(ctx)
	if err != nil {
		return err
	}
	asking, cancel := context.WithTimeout(ctx, followPatience)
	defer cancel()
	_, _ = l.Snapshot(asking)         // renews a certificate that is due; Certificate renews one that has ended
	cert, err := l.Keep.Certificate() //nolint:contextcheck // crypto/tls calls it without one; it has its own timeout
	if err != nil {
		return err
	}
	now := l.Keep.Credentials()
	return cli.JSONLine(a.Out, execCredential{
		APIVersion: execAPIVersion, Kind: "ExecCredential",
		Status: execCredentialStatus{Expiration: cert.Leaf.NotAfter.UTC(), Certificate: now.Chain(), Key: now.Key},
	})
}
