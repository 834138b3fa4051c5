package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/pipeops/pipeops-vm-agent/internal/atomicfile"
	"github.com/pipeops/pipeops-vm-agent/internal/boundedfile"
	"github.com/pipeops/pipeops-vm-agent/internal/kube"
	"github.com/pipeops/pipeops-vm-agent/internal/policy"
)

// policyPlace is where the policy is: a file, or the ConfigMap.
type policyPlace struct{ file string }

func (p *policyPlace) add(fl *pflag.FlagSet) {
	fl.StringVar(&p.file, "file", os.Getenv("PIPEOPS_POLICY_FILE"), "file that holds the policy (default: the policy in the cluster)")
}

// edit changes the text of the policy, and returns where it is.
func (p *policyPlace) edit(ctx context.Context, k *kube.Client, change func(text []byte, preset string) ([]byte, error)) (source string, err error) {
	if p.file == "" {
		return k.PolicySource(), mayChange(k.EditPolicy(ctx, change))
	}
	text, err := boundedfile.Head(p.file, policy.MaxSize+1)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return p.file, err
	}
	changed, err := change(text, "")
	if err != nil {
		return p.file, fmt.Errorf("change %s: %w", p.file, err)
	}
	mode := fs.FileMode(0o644)
	if info, err := os.Stat(p.file); err == nil {
		mode = info.Mode().Perm() // the agent's user may not be the caller
	}
	return p.file, atomicfile.Fill(p.file, func(f *os.File) error {
		if err := f.Chmod(mode); err != nil {
			return err
		}
		_, err := f.Write(changed)
		return err
	})
}

// mayChange adds to a refusal of the cluster who may change the policy.
func mayChange(err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%w (fix: give --kubeconfig of a user who may change the policy; the agent's service account may not)", err)
	}
	return err
}

// read returns the policy, and where it is.
func (p *policyPlace) read(ctx context.Context, own *ownCluster) (doc policy.Document, source string, err error) {
	if p.file != "" {
		doc, err = policy.ReadFile(p.file)
		return doc, p.file, err
	}
	k, err := own.client()
	if err != nil {
		return doc, "the policy", err
	}
	data, err := k.ReadPolicy(ctx)
	if err == nil {
		doc, err = policy.FromConfigMap(data)
	}
	return doc, k.PolicySource(), err
}
