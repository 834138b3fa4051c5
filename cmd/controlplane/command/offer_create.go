package command

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/boundedfile"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/release"
)

func newOfferCreate(a *app) *cobra.Command {
	var offered operatorapi.CreateOfferBody
	var out cli.Output
	cmd := &cobra.Command{
		Use:   "create FILE",
		Short: "Offer a signed version to agents",
		Long: `Offer a version to agents. FILE is its release.json, or the directory that contains it. The
signatures are beside it, in release.json.minisig.

An agent takes the version if it trusts the signatures and the version is newer than its own. Its
cluster owner must have turned self-update on. The agent waits for the cluster owner's window.
If several offers select an agent, it gets the highest version. A version that has expired is not
offered any more, and not taken.`,
		Example: `  pipeops-controlplane offer create dist/v1.2.3 --url https://downloads.example.com/v1.2.3 --agent shop
  pipeops-controlplane offer create dist/v1.2.3 --url https://downloads.example.com/v1.2.3 --label ring=early`,
		Args: cli.ExactArgs("FILE"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if offered.Keys, err = trusted(offered.Keys, offered.Signatures); err != nil {
				return err
			}
			if offered.Manifest, offered.Signature, err = readRelease(args[0]); err != nil {
				return err
			}
			return a.admin(cmd, func(ctx context.Context, admin operatorapi.Target) error {
				offer, err := operatorapi.CreateOffer.Do(ctx, admin, operatorapi.CreateOfferInput{Body: offered})
				if err != nil {
					return err
				}
				if out.Table() {
					a.say("%s is offered to %s; `pipeops-controlplane agent list` shows what becomes of it", offer.Version, offeredTo(offer))
				}
				return out.Write(a.out, offer, func(w io.Writer) { cli.Say(w, "%s", offer.ID) })
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&offered.URL, "url", "", "URL at which agents find the version's files, https://HOST/PATH")
	f.StringSliceVar(&offered.Agents, "agent", nil, "name or ID of an agent that gets the offer; may be repeated (default all)")
	f.StringToStringVar(&offered.Labels, "label", nil, "label that an agent must have to get the offer")
	f.StringSliceVar(&offered.Keys, "key", nil, "minisign public key that must have signed the version (default those of this build)")
	f.IntVar(&offered.Signatures, "signatures", 1, "how many of these keys must have signed the version")
	if err := cmd.MarkFlagRequired("url"); err != nil {
		panic(err) // the flag is defined above
	}
	out.Add(cmd)
	return cmd
}

// trusted returns the given keys, or otherwise those of this build.
func trusted(given []string, signatures int) ([]string, error) {
	text := cmp.Or(strings.Join(given, ","), releaseKeys)
	keys, err := release.ParseKeys(text)
	if err != nil {
		return nil, cli.Usage(fmt.Errorf("--key: %w", err))
	}
	if len(keys) == 0 {
		return nil, cli.Usage(fmt.Errorf("--key: is not set, and this build knows no key (fix: give the public key of those who sign your releases)"))
	}
	if signatures < 1 || signatures > len(keys) {
		return nil, cli.Usage(fmt.Errorf("--signatures: %d is not between 1 and the number of keys, %d (fix: name each signer's key with --key)", signatures, len(keys)))
	}
	return strings.Split(text, ","), nil
}

// readRelease reads the manifest, which may be named by its directory, and the signatures beside
// it.
func readRelease(file string) (manifest, signature []byte, err error) {
	if info, err := os.Stat(file); err == nil && info.IsDir() {
		file = filepath.Join(file, release.ManifestName)
	}
	if manifest, err = boundedfile.Read(file, release.MaxManifest); err != nil {
		return nil, nil, err
	}
	signature, err = boundedfile.Read(file+strings.TrimPrefix(release.SignatureName, release.ManifestName), release.MaxSignature)
	return manifest, signature, err
}
