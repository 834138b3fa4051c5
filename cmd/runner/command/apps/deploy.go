package apps

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/appfile"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/composefile"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// deployCommand creates an App or changes it.
type deployCommand struct {
	cmdutil.Rollout
	file string
	spec SpecFlags
	// save is a directory for the Apps' files of a Compose file.
	save string
	// adopt takes over what is there under the App's name.
	adopt bool
	// generation is that of the App from which the spec was made; 0 for any.
	generation int64
}

// ifGeneration is the flag with the generation from which the spec was made.
const ifGeneration = "if-generation"

// NewDeploy returns the command deploy.
func NewDeploy(a *cmdutil.CLI) *cobra.Command {
	c := &deployCommand{Rollout: cmdutil.Rollout{CLI: a}}
	cmd := &cobra.Command{
		Use:   "deploy [AGENT] [NAME] (--image IMAGE | -f FILE) [flags] [-- ARG...]",
		Short: "Create an App or replace its spec",
		Long: `Create an App or replace its spec. The command waits until the App is healthy, or until the cause
of its failure is known. With --public it also waits, for a minute at most, until the control
plane's gateway has got the App's answer, or prints what is missing.

Flags describe the App, or a file in YAML or JSON. The file holds a bare spec, or a manifest of
kind App (apiVersion pipeops.io/v1alpha1) with its own name and namespace. Flags override the
file, as in --image with the tag of this build.

A deploy replaces the whole spec: a setting that you do not give is removed. The scale (replicas
and autoscaling) and a pause stay as they are, unless --replicas or the file names them.
--replicas alone turns autoscaling off.

The services of a Compose file become Apps, one after the other, each after those that it depends
on. --save writes them to files. What an App cannot be is an error, before anything is deployed.
Of the flags for an App, --public, --run-as-root, --pull-secret and --env-secret apply to each of
them; --public to those that publish a port.

A file supports more than the flags do: files, volumes, init containers, security, update
strategy, patches and so on (see the API's document).`,
		Example: `  pipeops-runner deploy shop web --image registry.example.com/shop/web:1.4.2 --port 8080 --replicas 3
  pipeops-runner deploy shop web --image shop/web:1.4.2 --port 8080 --env LOG=info --env-secret PASSWORD=web-env/password --probe-path /healthz
  pipeops-runner deploy shop -f app.yaml --image shop/web:$TAG
  pipeops-runner deploy shop -f compose.yaml --save apps --dry-run
  pipeops-runner deploy shop web --image shop/web:1.4.2 --port 8080 --adopt --dry-run
  pipeops-runner deploy shop worker --image shop/web:1.4.2 --no-wait -- work --queue mails
  pipeops-runner deploy shop web --image shop/web:1.4.2 --port 8080 --public
  pipeops-runner deploy shop web --image shop/web:1.4.2 --port 8080 --host shop.example.com --tls-secret shop-tls
  pipeops-runner deploy shop report --type CronJob --schedule "15 3 * * *" --image shop/web:1.4.2 -- report`,
		Args:              cmdutil.BeforeDash(c.args),
		ValidArgsFunction: a.CompleteApp,
		RunE: func(cmd *cobra.Command, args []string) error {
			args, c.spec.Args = cmdutil.SplitArgs(cmd, args)
			return c.run(cmd, args)
		},
	}
	c.Add(cmd)
	c.spec.add(cmd)
	cmd.Flags().BoolVar(&c.adopt, "adopt", false, "take over a Deployment, Service and the like of this name that the agent did not create; the cluster owner's policy must name adopt-app")
	cmd.Flags().Int64Var(&c.generation, ifGeneration, 0, "refuse the deploy if the App has another generation: status -o yaml shows it")
	cmd.Flags().StringVarP(&c.file, "filename", "f", "", "file with the App or a Compose file, or - for standard input")
	cmd.Flags().StringVar(&c.save, "save", "", "directory to which the Apps of a Compose file are written, as NAME.yaml")
	_ = cmd.MarkFlagFilename("filename", "yaml", "yml", "json") // fails for an unknown flag only
	return cli.Extra(cmd, "--image")
}

// args requires NAME unless a file may have it.
func (c *deployCommand) args(cmd *cobra.Command, args []string) error {
	least := 2
	if c.file != "" {
		least = 1
	}
	return cli.RangeArgs(least, "AGENT", "NAME")(cmd, args)
}

func (c *deployCommand) run(cmd *cobra.Command, args []string) error {
	m := appfile.File{}
	if c.file != "" {
		text, err := cmdutil.ReadFile(c.file, c.In)
		switch {
		case err != nil:
			return err
		case composefile.Is(text):
			return c.compose(cmd, args, text)
		}
		if m, err = cmdutil.ParseManifest(c.file, text); err != nil {
			return err
		}
	}
	if c.save != "" {
		return cli.Usage(errors.New("--save is for a Compose file: the file that you have is an App's"))
	}
	args, err := c.withAgent(args, m)
	if err != nil {
		return err
	}
	name, err := c.name(cmd, args, m)
	if err != nil {
		return err
	}
	spec := m.Spec
	if err := c.spec.Apply(&spec); err != nil {
		return err
	}
	if spec.Image == "" {
		return cli.Usage(errors.New("no image: give --image IMAGE, or a file that has one"))
	}
	c.SayWarnings(spec)
	return c.deploy(cmd.Context(), args[0], name, spec)
}

func (c *deployCommand) deploy(ctx context.Context, agent, name string, spec runnerapi.AppSpec) error {
	return c.Run(ctx, agent, name, func(ctx context.Context, t *cmdutil.Target, key runnerapi.Key, opts runnerapi.WriteOptions) (runnerapi.App, error) {
		opts.Adopt, opts.Generation = c.adopt, c.generation
		c.sayOpened(ctx, t, key, spec)
		return t.Apps().Deploy(ctx, key, spec, opts)
	})
}

// sayOpened warns of a deploy that opens an App to everyone which had bounds for its visitors: a
// deploy replaces the whole spec. Without the right to read the App, there is no warning.
func (c *deployCommand) sayOpened(ctx context.Context, t *cmdutil.Target, key runnerapi.Key, spec runnerapi.AppSpec) {
	if spec.Ingress == nil || spec.Ingress.Visitors != nil {
		return
	}
	had, err := t.Apps().Get(ctx, key)
	if err == nil && had.Spec.Ingress != nil && had.Spec.Ingress.Visitors != nil {
		c.Say("the App had ingress.visitors, and this deploy removes them: everyone may visit it (fix: give --sign-in-email, --allow-from and the like again)")
	}
}

// withAgent puts the default agent before an argument that is the App's name: the file has no name,
// or this one.
func (c *deployCommand) withAgent(args []string, m appfile.File) ([]string, error) {
	if len(args) != 1 || m.Name != "" && m.Name != args[0] {
		return args, nil
	}
	agent, err := c.DefaultAgent()
	if agent == "" {
		return args, err
	}
	return []string{agent, args[0]}, nil
}

// name returns the App's name and namespace, from the arguments or the file, and returns an error
// if they differ.
func (c *deployCommand) name(cmd *cobra.Command, args []string, m appfile.File) (string, error) {
	switch {
	case m.Namespace != "" && !cmd.Flags().Changed("namespace"):
		c.Namespace = m.Namespace
	case m.Namespace != "" && m.Namespace != c.Namespace:
		return "", cli.Usage(fmt.Errorf("the file is for namespace %q, -n says %q", m.Namespace, c.Namespace))
	}
	switch {
	case len(args) < 2 && m.Name == "":
		return "", cli.Usage(errors.New("NAME is missing: the App's name"))
	case len(args) < 2:
		return m.Name, nil
	case m.Name != "" && m.Name != args[1]:
		return "", cli.Usage(fmt.Errorf("the file is for App %q, the argument says %q", m.Name, args[1]))
	}
	return args[1], nil
}
