package sources

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// sourceBuild is the flags of a source whose image is built.
type sourceBuild struct {
	template buildTemplate
	build    runnerapi.SourceBuild
}

func (b *sourceBuild) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	b.template.flags(f, "--context")
	f.Lookup("image").Usage = "for app: REGISTRY/REPOSITORY of the image that is built from each commit; the commit is the tag"
	f.StringVar(&b.build.Context, "context", "", "directory in the repository that is the build context (default: its root)")
	f.StringVar(&b.build.Namespace, "build-namespace", "", "namespace of the build (default: "+runnerapi.DefaultBuildNamespace+")")
	f.StringVar(&b.build.GitCredentials, "git-credentials", "", "secret in the build's namespace with the credentials for the repository (default: the name of --secret)")
}

// into puts the build into a spec, where one is asked for.
func (b *sourceBuild) into(spec *runnerapi.SourceSpec) error {
	if err := b.template.complete(); err != nil {
		return err
	}
	b.build.BuildTemplate = b.template.BuildTemplate
	if b.build.Image != "" {
		spec.Build = &b.build
	} else if b.build.Context != "" || b.build.Dockerfile != "" || b.build.PushCredentials != "" {
		return errors.New("--image is needed to build")
	}
	return nil
}

func newSourceLogs(a *cmdutil.CLI) *cobra.Command {
	return newLogsOfBuild(a, "Print or follow the log of a source's newest build", "pipeops-runner source logs shop web -f",
		func(ctx context.Context, t *cmdutil.Target, key runnerapi.Key) (runnerapi.Key, error) {
			source, err := t.Sources().Get(ctx, key)
			switch {
			case err != nil:
				return key, cmdutil.At(t, key.String(), err)
			case source.Status.Build == nil:
				return key, &cmdutil.ExitError{Code: cmdutil.ExitNotFound, Err: fmt.Errorf("source %s has built nothing yet", key),
					Fix: "see how it is doing: pipeops-runner source get " + t.Agent.Name + " " + key.Name + " -n " + key.Namespace}
			}
			return source.Status.Build.Key(), nil
		})
}
