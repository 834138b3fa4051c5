package command

import (
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"github.com/pipeops/pipeops-vm-agent/internal/manifests"
	"github.com/pipeops/pipeops-vm-agent/internal/policy/input"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// objectFlags are objects that a command brings as manifests, or in a chart.
type objectFlags struct {
	kinds     []string
	manifests string
}

func (f *objectFlags) add(fl *pflag.FlagSet) {
	fl.StringSliceVar(&f.kinds, "kind", nil, "kinds of the objects to apply, as KIND or KIND.GROUP")
	fl.StringVar(&f.manifests, "manifests", "", "file with the manifests to apply, such as the output of helm template")
}

// bring puts into the intent what the flags name.
func (f *objectFlags) bring(i *runnerapi.Intent) error {
	for _, kind := range f.kinds {
		i.Objects = append(i.Objects, runnerapi.ObjectIntent{Kind: kind})
	}
	if f.manifests == "" {
		return nil
	}
	in, err := os.Open(f.manifests)
	if err != nil {
		return fmt.Errorf("--manifests: %w", err)
	}
	defer func() { _ = in.Close() }()
	docs, err := manifests.Read(in)
	if err != nil {
		return fmt.Errorf("--manifests: %s: %w", f.manifests, err)
	}
	for _, u := range docs.Objects {
		o, err := input.Object(u)
		o.Location = fmt.Sprintf("%s: %s %s", docs.Where(u), u.GetKind(), u.GetName())
		if err != nil {
			return fmt.Errorf("--manifests: %s: %s: %w", f.manifests, o.Location, err)
		}
		i.Objects = append(i.Objects, o)
	}
	return nil
}
