package contextfile

import (
	"cmp"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
)

// Commands are what both programs do with contexts.
type Commands struct {
	Kind
	// Named returns the context that a flag or the environment names; empty for none.
	Named func() string
	// Missing returns the program's error for a context that does not exist.
	Missing func(error) error
	// Holder returns the Runner or operator, and the control plane, that a credentials file names.
	Holder func(path string) (name, controlPlane string, err error)
	// Defaults reports that a context also has a default agent and namespace: a Runner's.
	Defaults bool
	// Say prints hints for people.
	Say func(format string, args ...any)
}

// Load returns the file and the context in it that the arguments name: for none, the one that
// applies.
func (c Commands) Load(args []string) (*File, *Context, error) {
	file, err := c.Kind.Load()
	if err != nil {
		return nil, nil, cli.Usage(err)
	}
	name := cmp.Or(c.Named(), file.CurrentContext)
	if len(args) > 0 {
		name = args[0] // also an empty one, such as of a variable that is not set
	} else if name == "" {
		return nil, nil, cli.Usage(fmt.Errorf("no context is in use: give NAME, or choose one with `%s context use NAME`", c.Program))
	}
	found, err := file.Get(name)
	if err != nil {
		return nil, nil, c.Missing(err)
	}
	return file, found, nil
}

// Complete offers the names of the contexts for the first argument.
func (k Kind) Complete(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	file, err := k.Load()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names := make([]string, len(file.Contexts))
	for i, c := range file.Contexts {
		names[i] = c.Name
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// Use returns the command context use.
func (c Commands) Use() *cobra.Command {
	return &cobra.Command{
		Use: "use NAME", Short: "Make a context the current one",
		Example: "  " + c.Program + " context use staging",
		Args:    cli.ExactArgs("NAME"), ValidArgsFunction: c.Complete,
		RunE: func(_ *cobra.Command, args []string) error {
			file, found, err := c.Load(args)
			if err != nil {
				return err
			}
			file.CurrentContext = found.Name
			if err := file.Save(); err != nil {
				return err
			}
			c.Say("the current context is %s", file.CurrentContext)
			return nil
		},
	}
}

// Delete returns the command context delete.
func (c Commands) Delete() *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME", Short: "Delete a context with its stored credentials",
		Example: "  " + c.Program + " context delete staging",
		Args:    cli.ExactArgs("NAME"), ValidArgsFunction: c.Complete,
		RunE: func(_ *cobra.Command, args []string) error {
			file, found, err := c.Load(args)
			if err != nil {
				return err
			}
			if err := file.Delete(found.Name); err != nil {
				return err
			}
			c.Say("deleted: context %s", args[0])
			return nil
		},
	}
}

// Login stores credentials in the context of a name, which it makes the current one. change sets
// the context's defaults, and write writes the credentials to a file.
func (k Kind) Login(name string, change func(*Context), write func(path string) error) (*Context, error) {
	file, err := k.Load()
	if err != nil {
		return nil, cli.Usage(err)
	}
	c, err := file.Put(name)
	if err != nil {
		return nil, cli.Usage(err)
	}
	c.Credentials = file.place(c.Name)
	change(c)
	file.CurrentContext = c.Name
	if err := os.MkdirAll(file.folder(), 0o700); err != nil {
		return nil, fmt.Errorf("contexts: %w", err)
	}
	if err := write(c.Credentials); err != nil {
		return nil, err
	}
	return c, file.Save()
}
