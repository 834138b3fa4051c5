package access

import (
	"cmp"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	kept "github.com/pipeops/pipeops-vm-agent/runnerapi/login"
)

// credentialsView is the part of a Runner's credentials that is not secret.
type credentialsView struct {
	Runner       string    `json:"runner"`
	Key          string    `json:"key"`
	Agents       string    `json:"agents,omitempty"`
	ExpiresAt    time.Time `json:"expiresAt"`
	ControlPlane string    `json:"controlPlane"`
	Endorsed     bool      `json:"endorsed"`
}

// NewCredentials returns the command credentials.
func NewCredentials(a *cmdutil.CLI) *cobra.Command {
	var (
		out       cli.Output
		publicKey bool
		endorse   string
	)
	cmd := &cobra.Command{
		Use:   "credentials",
		Short: "Show the Runner and key fingerprint of the credentials",
		Long: "Show the public part of the credentials, and never a key.\n\n" +
			"A cluster owner's policy can pin the fingerprint (trust, docs/reference/policy.md). Renewed\n" +
			"certificates keep the key. The control plane's commands `runner create --force` and `runner grant`\n" +
			"create another key.",
		Example: `  pipeops-runner credentials
  pipeops-runner credentials --public-key > ci.pub
  pipeops-runner credentials --endorse ci-endorsement.pem`,
		Args: cli.ExactArgs(),
		RunE: func(*cobra.Command, []string) error {
			file, err := a.CredentialsFile()
			if err != nil {
				return err
			}
			c, err := credentials.Load(file)
			if err != nil {
				return cli.Usage(err)
			}
			if endorse != "" {
				if err := addEndorsement(&c, endorse, kept.To(file)); err != nil {
					return cli.Usage(err)
				}
			}
			if publicKey {
				text, err := c.PublicKey()
				if err != nil {
					return err
				}
				return cli.Raw(a.Out, text)
			}
			return showCredentials(a.Out, c, &out)
		},
	}
	out.Add(cmd)
	cmd.Flags().BoolVar(&publicKey, "public-key", false, "print the public key in PEM, for a cluster owner's CA to certify")
	cmd.Flags().StringVar(&endorse, "endorse", "", "file with the certificate of a cluster owner's CA for the public key, to present to agents from now on")
	return cmd
}

func addEndorsement(c *credentials.Credentials, file string, save func(credentials.Credentials) error) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := c.Endorse(text); err != nil {
		return err
	}
	return save(*c)
}

func showCredentials(w io.Writer, c credentials.Credentials, out *cli.Output) error {
	cert, err := c.TLSCertificate()
	if err != nil {
		return err
	}
	grant, err := credentials.GrantOf(cert.Leaf)
	if err != nil {
		return err
	}
	v := credentialsView{
		Runner: c.Runner, Key: credentials.KeyFingerprint(cert.Leaf), Agents: grant.String(), ExpiresAt: cert.Leaf.NotAfter.UTC(),
		ControlPlane: c.ControlPlane, Endorsed: c.Endorsement != "",
	}
	return out.Write(w, v, func(w io.Writer) {
		cli.Row(w, "RUNNER", v.Runner)
		cli.Row(w, "KEY", v.Key)
		cli.Row(w, "AGENTS", cmp.Or(v.Agents, "all"))
		cli.Row(w, "EXPIRES", cli.Time(v.ExpiresAt))
		cli.Row(w, "CONTROL PLANE", v.ControlPlane)
		cli.Row(w, "ENDORSED", v.Endorsed)
	})
}
