package helm

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/helm/repository"
	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// login reads the credentials that a spec names.
func (p *put) login(ctx context.Context) (*repository.Login, error) {
	name := p.spec.Chart.CredentialsSecret
	if name == "" {
		return nil, nil
	}
	at, err := p.clients.core.Secrets(p.key.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		err = kubeproblem.From(err, "reading Secret "+name)
		if known, ok := errors.AsType[*problem.Error](err); ok {
			return nil, known.WithField(repository.CredentialsField)
		}
		return nil, err
	}
	return repository.ReadLogin(name, at.Data, p.spec.Chart)
}
