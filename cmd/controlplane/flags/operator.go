package flags

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/contextfile"
)

const (
	// EnvOperator names the file with an operator's credentials.
	EnvOperator = envPrefix + "OPERATOR_CREDENTIALS"
	// EnvContext names the context with them.
	EnvContext = envPrefix + "OPERATOR_CONTEXT"
	envDataDir = envPrefix + "DATA_DIR"
)

// Operator selects how commands reach a control plane: with credentials from anywhere, on the
// machine of the data directory, or by opening the data directory itself.
type Operator struct {
	file, context string
	offline       bool
}

// Add adds the flags.
func (o *Operator) Add(f *pflag.FlagSet) {
	f.StringVar(&o.file, "credentials", "", "file with an operator's credentials, for a control plane anywhere ($"+EnvOperator+")")
	f.StringVar(&o.context, "context", "", "context with an operator's credentials ($"+EnvContext+"); login and context set create one")
	f.BoolVar(&o.offline, "offline", false, "work on the data directory and its database themselves, as the control plane does: for when none serves")
	for _, name := range []string{"credentials", "context", "offline"} { // none is for PIPEOPS_ and its name
		_ = f.SetAnnotation(name, notFromEnvironment, []string{})
	}
}

// Offline reports whether the command works on the data directory itself.
func (o *Operator) Offline() bool { return o.offline }

// Given reports whether a flag names credentials.
func (o *Operator) Given() bool { return o.file != "" || o.context != "" }

// Context returns the context that the flag or the environment names; empty for none.
func (o *Operator) Context() string { return cmp.Or(o.context, os.Getenv(EnvContext)) }

// ContextFlag returns the context that the flag names; empty for none.
func (o *Operator) ContextFlag() string { return o.context }

// CredentialsFlag returns the file that the flag names; empty for none.
func (o *Operator) CredentialsFlag() string { return o.file }

// File returns the file with the credentials; empty for the control plane that serves the data
// directory on this machine. A flag comes before the environment, and that before the current
// context and the default data directory.
func (o *Operator) File(cmd *cobra.Command) (string, error) {
	dataDir := cmd.Flags().Lookup("data-dir")
	switch {
	case o.file != "" && o.context != "":
		return "", cli.Usage(errors.New("--credentials and --context: give one of them"))
	case o.file != "":
		return o.file, nil
	case o.context != "":
		return ofContext(o.context)
	case dataDir != nil && dataDir.Changed:
		return "", nil
	case os.Getenv(EnvOperator) != "":
		return os.Getenv(EnvOperator), nil
	case os.Getenv(EnvContext) != "":
		return ofContext(os.Getenv(EnvContext))
	case os.Getenv(envDataDir) != "":
		return "", nil
	}
	return ofContext("")
}

// ofContext returns the file of a context, or else of the current one; empty for none.
func ofContext(name string) (string, error) {
	if _, err := contextfile.Folder(); err != nil && name == "" { // a service without a home
		return "", nil
	}
	file, err := contextfile.Operator.Load()
	if errors.Is(err, fs.ErrPermission) && name == "" { // sudo with another user's home
		return "", nil
	}
	if err != nil {
		return "", cli.Usage(err)
	}
	if name = cmp.Or(name, file.CurrentContext); name == "" {
		return "", nil
	}
	c, err := file.Get(name)
	if err != nil {
		return "", cli.Usage(err)
	}
	return c.Credentials, nil
}

// offlineOnly marks flags that a command needs to work on the data directory itself, and that it
// would ignore otherwise.
const offlineOnly = "offline-only"

// MarkOfflineOnly marks flags that have a meaning with --offline alone.
func MarkOfflineOnly(f *pflag.FlagSet, names ...string) {
	for _, name := range names {
		_ = f.SetAnnotation(name, offlineOnly, []string{}) // fails for an unknown flag only
	}
}

// OfflineOnly refuses flags that a command by the operator API would ignore.
func OfflineOnly(cmd *cobra.Command) error {
	var wrong error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if _, marked := f.Annotations[offlineOnly]; marked && wrong == nil {
			wrong = cli.Usage(fmt.Errorf("--%s: the control plane uses its own; leave it out, or add --offline to work on the data directory itself", f.Name))
		}
	})
	return wrong
}
