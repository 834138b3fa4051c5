package helm

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/helm/repository"
	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// login reads the credentials that a chart's source names in the release's namespace.
func (c *clients) login(ctx context.Context, namespace string, chart runnerapi.ChartSource) (*repository.Login, error) {
	name := chart.CredentialsSecret
	if name == "" {
		return nil, nil
	}
	at, err := c.core.Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		err = kubeproblem.From(err, "reading Secret "+name)
		if known, ok := errors.AsType[*problem.Error](err); ok {
			return nil, known.WithField(repository.CredentialsField)
		}
		return nil, err
	}
	return repository.ReadLogin(name, at.Data, chart)
}
