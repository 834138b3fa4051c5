package cmdutil

import (
	"cmp"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/contextfile"
)

const (
	// EnvCredentials is the variable that names the file with the credentials.
	EnvCredentials = "PIPEOPS_RUNNER_CREDENTIALS" //nolint:gosec // a variable's name
	// EnvContext is the variable that names the context.
	EnvContext = "PIPEOPS_CONTEXT"
	// EnvAgent is the variable that names the agent of commands without AGENT.
	EnvAgent = "PIPEOPS_AGENT"

	defaultNamespace = "production"
)

// Defaults finds what a command line leaves out: the credentials, the agent and the namespace. They
// come from the environment, or from a context.
type Defaults struct {
	Credentials string // of the flag --credentials
	Context     string // of the flag --context
}

// CredentialsFile returns where the credentials are. A flag wins over a variable, and a variable
// over the current context.
func (d *Defaults) CredentialsFile() (string, error) {
	path := os.Getenv(EnvCredentials)
	switch {
	case d.exchanges():
		return "", &ExitError{
			Err: errors.New("the credentials for the job's ID token are in no file"), Code: ExitUsage,
			Fix: "log in with `pipeops-runner login --oidc --context NAME`, and use the context: --context NAME or " + EnvContext,
		}
	case d.Credentials != "":
		return d.Credentials, nil
	case path != "" && d.Context == "":
		return path, nil
	}
	c, err := d.context()
	if err != nil {
		return "", err
	}
	if c.Credentials == "" {
		return "", &ExitError{
			Err: errors.New("no credentials were given"), Code: ExitUsage,
			Fix: "log in with `pipeops-runner login FILE`, or use --credentials FILE or " + EnvCredentials +
				"; the operator makes the file with `pipeops-controlplane runner create NAME -o FILE`",
		}
	}
	return c.Credentials, nil
}

// ContextNamed returns the context that --context or the environment names; "" for none.
func (d *Defaults) ContextNamed() string { return cmp.Or(d.Context, os.Getenv(EnvContext)) }

// context returns the context that applies, which is empty if there is none. Credentials from
// elsewhere are for another control plane: only a context that is named applies beside them.
func (d *Defaults) context() (contextfile.Context, error) {
	name := d.ContextNamed()
	if name == "" && (d.Credentials != "" || os.Getenv(EnvCredentials) != "" || d.exchanges()) {
		return contextfile.Context{}, nil
	}
	file, err := contextfile.Runner.Load()
	if err != nil {
		return contextfile.Context{}, &ExitError{Err: err, Code: ExitUsage}
	}
	name = cmp.Or(name, file.CurrentContext)
	if name == "" {
		return contextfile.Context{}, nil
	}
	c, err := file.Get(name)
	if err != nil {
		return contextfile.Context{}, &ExitError{Err: err, Code: ExitUsage}
	}
	return *c, nil
}

// DefaultAgent returns the agent of commands without AGENT; "" if there is none.
func (d *Defaults) DefaultAgent() (string, error) {
	if name := os.Getenv(EnvAgent); name != "" {
		return name, nil
	}
	c, err := d.context()
	return c.Agent, err
}

// ofContext marks a flag whose default a context can set.
const ofContext = "of-context"

// NamespaceFlag adds the flag --namespace.
func NamespaceFlag(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVarP(to, "namespace", "n", defaultNamespace, "namespace in the agent's cluster; a context can set another default")
	_ = cmd.Flags().SetAnnotation("namespace", ofContext, nil) // fails for an unknown flag only
}

// UseContext gives --namespace the context's default.
func (d *Defaults) UseContext(cmd *cobra.Command) error {
	flag := cmd.Flags().Lookup("namespace")
	if flag == nil || flag.Changed {
		return nil
	}
	if _, marked := flag.Annotations[ofContext]; !marked {
		return nil
	}
	c, err := d.context()
	if err != nil || c.Namespace == "" {
		return err
	}
	return flag.Value.Set(c.Namespace)
}

// AgentOptional lets the user leave out AGENT, the first argument of a command. Arguments that are
// valid as they are stay so. Otherwise, the default agent comes before them.
func (d *Defaults) AgentOptional(cmd *cobra.Command) {
	valid, run, complete := cmd.Args, cmd.RunE, cmd.ValidArgsFunction
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		_, err := d.withAgent(cmd, valid, args)
		return err
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		args, err := d.withAgent(cmd, valid, args)
		if err != nil {
			return err
		}
		return run(cmd, args)
	}
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		names, directive := complete(cmd, args, typed)
		if agent, err := d.DefaultAgent(); err == nil && agent != "" {
			more, _ := complete(cmd, append([]string{agent}, args...), typed)
			names = append(names, more...)
		}
		return names, directive
	}
}

func (d *Defaults) withAgent(cmd *cobra.Command, valid cobra.PositionalArgs, args []string) ([]string, error) {
	if forFleet(cmd) {
		full := append([]string{""}, args...)
		if valid(cmd, full) != nil {
			return nil, cli.Usage(fmt.Errorf("with --selector, leave AGENT out of: %s", cmd.Use))
		}
		return full, nil
	}
	wrong := valid(cmd, args)
	if wrong == nil {
		return args, nil
	}
	agent, err := d.DefaultAgent()
	if err != nil {
		return nil, err
	}
	full := append([]string{agent}, args...)
	if valid(cmd, full) != nil {
		return nil, wrong
	}
	if agent == "" {
		return nil, &ExitError{
			Err: wrong, Code: ExitUsage,
			Fix: "give AGENT, or a default for it: " + EnvAgent + ", or `pipeops-runner context set --agent AGENT`",
		}
	}
	return full, nil
}

// SplitArgs returns the arguments before -- and those after it, which are nil without one.
func SplitArgs(cmd *cobra.Command, args []string) (before, after []string) {
	dash := cmd.ArgsLenAtDash()
	if dash < 0 {
		return args, nil
	}
	first := len(args) - (cmd.Flags().NArg() - dash)
	return args[:first], args[first:]
}

// BeforeDash checks the arguments before --.
func BeforeDash(valid cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		before, _ := SplitArgs(cmd, args)
		return valid(cmd, before)
	}
}
