package agent

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/internal/app/ingress"
	"github.com/pipeops/pipeops-vm-agent/internal/gateway/signin"
)

// signIn returns how visitors of Apps sign in.
func (a *Agent) signIn() ingress.SignIn {
	return ingress.SignIn{Guard: a.guard, ControlPlane: a.visitors.Source, Key: func(ctx context.Context) (signin.Key, error) {
		secret, err := a.kube.Secrets().SharedSecret(ctx)
		if err != nil {
			return signin.Key{}, err
		}
		return signin.KeyOf(secret), nil
	}}
}
