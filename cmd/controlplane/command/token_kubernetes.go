package command

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
)

// kubernetesTrust are the flags of a token without a secret.
type kubernetesTrust struct {
	keys, issuer, account, audience string
}

func (k *kubernetesTrust) add(f *pflag.FlagSet) {
	f.StringVar(&k.keys, "kubernetes-jwks", "", "file with the public keys of a cluster's service-account issuer, or - for the standard input")
	f.StringVar(&k.issuer, "kubernetes-issuer", administration.DefaultKubernetesIssuer, "issuer of the cluster's service-account tokens")
	f.StringVar(&k.account, "service-account", administration.DefaultServiceAccount, "the agent's service account, NAMESPACE:NAME")
	f.StringVar(&k.audience, "kubernetes-audience", "", "audience of the service-account tokens (default the control plane's URL)")
}

// body returns what the flags say; nil if the token has a secret.
func (k *kubernetesTrust) body(cmd *cobra.Command) (*operatorapi.KubernetesBody, error) {
	if k.keys == "" {
		for _, flag := range []string{"kubernetes-issuer", "service-account", "kubernetes-audience"} {
			if cmd.Flags().Changed(flag) {
				return nil, cli.Usage(fmt.Errorf("--%s needs --kubernetes-jwks, the keys of the cluster", flag))
			}
		}
		return nil, nil
	}
	keys, err := readKeys(cmd, k.keys)
	return &operatorapi.KubernetesBody{JWKS: keys, Issuer: k.issuer, ServiceAccount: k.account, Audience: k.audience}, err
}

// maxKeyFile bounds a file of keys, in bytes. The control plane has a tighter bound.
const maxKeyFile = 1 << 20

// readKeys reads a file of keys, if one is named.
func readKeys(cmd *cobra.Command, path string) (string, error) {
	if path == "" {
		return "", nil
	}
	text, err := cli.ReadLimited(path, cmd.InOrStdin(), maxKeyFile)
	if err != nil {
		return "", cli.Usage(fmt.Errorf("--kubernetes-jwks: %w", err))
	}
	return string(text), nil
}
