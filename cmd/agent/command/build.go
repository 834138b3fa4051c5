package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pipeops/pipeops-vm-agent/internal/build/step"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/egress"
	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/internal/signature"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// newBuild returns the commands for the steps that the agent's image carries out in the pod of a
// build (docs/adr/0042). They are not for users.
func newBuild() *cobra.Command {
	cmd := &cobra.Command{
		Use: "build", Short: "Run one step of a build in its pod", Hidden: true, Args: cli.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newBuildFetch(), newBuildPush())
	return cmd
}

func newBuildFetch() *cobra.Command {
	guard, signers := &guardFlags{}, &signerFlags{}
	f := step.Fetch{Dir: step.Work, CommitDir: step.CommitDir, SecretDir: step.GitSecret, ProxyOfEnv: true}
	cmd := &cobra.Command{
		Use: "fetch", Short: "Fetch the files of a commit", Args: cli.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if f.Guard, err = guard.read(); err != nil {
				return wrong(err)
			}
			if f.Signers, err = signers.read(); err != nil {
				return wrong(err)
			}
			f.Out = cmd.OutOrStdout()
			return runStep(cmd, f.Run)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.URL, "url", "", "address of the Git repository")
	fl.StringVar(&f.Ref.Branch, "branch", "", "branch to build")
	fl.StringVar(&f.Ref.Tag, "tag", "", "tag to build")
	fl.StringVar(&f.Ref.Semver, "semver", "", "range of versions of which to build the newest tag")
	fl.StringVar(&f.Ref.Commit, "commit", "", "commit to build")
	fl.StringVar(&f.Path, "path", "", "directory in the repository that is the build context")
	fl.StringVar(&f.Secret, "secret", "", "name of the Secret whose keys are in "+step.GitSecret)
	guard.add(fl)
	signers.add(fl)
	return cmd
}

// signerFlags are how the agent passes on by whom the commit must be signed.
type signerFlags struct {
	source string
	keys   []string
}

func (s *signerFlags) add(fl *pflag.FlagSet) {
	fl.StringVar(&s.source, "signers", "", "where the policy demands a signed commit (default: it demands none)")
	fl.StringArrayVar(&s.keys, "signer", nil, "public key, or keyless signer in JSON, that may have signed the commit; may be repeated")
}

func (s *signerFlags) read() ([]signature.Signers, error) {
	if s.source == "" {
		return nil, nil
	}
	signers := signature.Signers{Source: s.source}
	for _, text := range s.keys {
		key, err := signature.ReadKey(text)
		if err != nil {
			return nil, fmt.Errorf("--signer: %w", err)
		}
		signers.Keys = append(signers.Keys, key)
	}
	return []signature.Signers{signers}, nil
}

// guardFlags are how the agent passes its guard on to the step.
type guardFlags struct{ addresses, hosts []string }

func (g *guardFlags) add(fl *pflag.FlagSet) {
	fl.StringSliceVar(&g.addresses, "fetch-addresses", nil, "ranges of addresses that are not refused")
	fl.StringSliceVar(&g.hosts, "fetch-hosts", nil, "hosts to fetch from, as the policy lists them; none if empty (default: any host)")
}

func (g *guardFlags) read() (egress.Guard, error) {
	hosts := egress.Hosts{Patterns: g.hosts}
	guard := egress.Guard{Hosts: func() egress.Hosts { return hosts }}
	for _, text := range g.addresses {
		p, err := limit.ParseNetwork(text)
		if err != nil {
			return guard, fmt.Errorf("--fetch-addresses: %w", err)
		}
		guard.Allowed = append(guard.Allowed, p)
	}
	return guard, nil
}

func newBuildPush() *cobra.Command {
	var image string
	cmd := &cobra.Command{
		Use: "push", Short: "Push the built image to a registry", Args: cli.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			repository, err := runnerapi.BuildTemplate{Image: image}.Repository()
			if err != nil {
				return wrong(fmt.Errorf("--image: %w", err))
			}
			return runStep(cmd, step.Push{Repository: repository, Dir: step.Work, CommitDir: step.CommitDir, Out: cmd.OutOrStdout()}.Run)
		},
	}
	cmd.Flags().StringVar(&image, "image", "", "image to push, as REGISTRY/REPOSITORY[:TAG]")
	return cmd
}

func runStep(cmd *cobra.Command, run func(context.Context) (step.Result, error)) error {
	ctx, cancel := signals(cmd.Context())
	defer cancel()
	result, err := run(ctx)
	return step.Report(step.Termination, result, err)
}
