package server

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/params"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
)

type (
	secretOutput     struct{ Body runnerapi.Secret }
	secretListOutput struct{ Body runnerapi.SecretList }
)

// secretCalls are the calls about Secrets.
type secretCalls struct {
	*calls
	secrets backend.Secrets
}

func (s *secretCalls) routes() {
	register(s.calls, operation("put-secret", "Secrets", "Set a Secret",
		"Creates the Secret or replaces all its keys. Values go in and never come out.", runnerapi.MaxSecretBody), s.putSecret)
	register(s.calls, operation("get-secret", "Secrets", "Get a Secret",
		"Keys, sizes and a digest, no values.", 0), s.getSecret)
	register(s.calls, operation("delete-secret", "Secrets", "Delete a Secret",
		"Removes a Secret that came through the agent. Pods that run keep what they took from it.", 0), s.deleteSecret)
	register(s.calls, operation("list-secrets", "Secrets", "List the Secrets of a namespace",
		"The Secrets that the agent manages.", 0), s.listSecrets)
}

func (s *secretCalls) putSecret(ctx context.Context, in *struct {
	params.Object
	params.Write
	params.Replace
	Body runnerapi.SecretSpec
}) (*secretOutput, error) {
	if err := invalid(in.Body.Validate()); err != nil {
		return nil, err
	}
	opts := s.writeOptions(ctx, in.Write)
	opts.Digest = in.Digest()
	secret, err := s.secrets.Set(ctx, objectKey(in.Object), in.Body, opts)
	return &secretOutput{Body: secret}, err
}

func (s *secretCalls) getSecret(ctx context.Context, in *params.Object) (*secretOutput, error) {
	secret, err := s.secrets.Get(ctx, objectKey(*in))
	return &secretOutput{Body: secret}, err
}

func (s *secretCalls) deleteSecret(ctx context.Context, in *struct {
	params.Object
	params.Write
}) (*emptyOutput, error) {
	return &emptyOutput{}, s.secrets.Delete(ctx, objectKey(in.Object), s.writeOptions(ctx, in.Write))
}

func (s *secretCalls) listSecrets(ctx context.Context, in *struct {
	params.Namespace
	params.Page
}) (*secretListOutput, error) {
	items, err := s.secrets.List(ctx, in.Namespace.Namespace)
	items, rest, err := paged(in.Page, items, err, func(o runnerapi.Secret) string { return keyOf(o.Namespace, o.Name) })
	return &secretListOutput{Body: runnerapi.SecretList{Items: items, Page: rest}}, err
}
