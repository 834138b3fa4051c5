package server

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/params"
)

type (
	secretOutput        struct{ Body runnerapi.Secret }
	secretListOutput    struct{ Body runnerapi.SecretList }
	namespaceOutput     struct{ Body runnerapi.Namespace }
	namespaceListOutput struct{ Body runnerapi.NamespaceList }
	clusterOutput       struct{ Body runnerapi.Cluster }
)

func (s *server) secretRoutes() {
	register(s, operation("put-secret", "Secrets", "Set a Secret",
		"Creates the Secret or replaces all its keys. Values go in and never come out.", runnerapi.MaxSecretBody), s.putSecret)
	register(s, operation("get-secret", "Secrets", "Get a Secret",
		"Keys, sizes and a digest, no values.", 0), s.getSecret)
	register(s, operation("delete-secret", "Secrets", "Delete a Secret",
		"Removes a Secret that came through the agent. Pods that run keep what they took from it.", 0), s.deleteSecret)
	register(s, operation("list-secrets", "Secrets", "List the Secrets of a namespace",
		"The Secrets that the agent manages.", 0), s.listSecrets)
}

func (s *server) putSecret(ctx context.Context, in *struct {
	params.Object
	params.Write
	Body runnerapi.SecretSpec
}) (*secretOutput, error) {
	if err := invalid(in.Body.Validate()); err != nil {
		return nil, err
	}
	secret, err := s.Secrets.PutSecret(ctx, objectKey(in.Object), in.Body, s.writeOptions(ctx, in.Write))
	return &secretOutput{Body: secret}, err
}

func (s *server) getSecret(ctx context.Context, in *params.Object) (*secretOutput, error) {
	secret, err := s.Secrets.GetSecret(ctx, objectKey(*in))
	return &secretOutput{Body: secret}, err
}

func (s *server) deleteSecret(ctx context.Context, in *struct {
	params.Object
	params.Write
}) (*emptyOutput, error) {
	return &emptyOutput{}, s.Secrets.DeleteSecret(ctx, objectKey(in.Object), s.writeOptions(ctx, in.Write))
}

func (s *server) listSecrets(ctx context.Context, in *params.Namespace) (*secretListOutput, error) {
	items, err := s.Secrets.ListSecrets(ctx, in.Namespace)
	return &secretListOutput{Body: runnerapi.SecretList{Items: notNil(items)}}, err
}

func (s *server) namespaceRoutes() {
	register(s, operation("put-namespace", "Namespaces", "Set a namespace",
		"Creates the namespace or updates its labels, quota, default limits and network policy; from then on the agent manages it. "+
			"What is not given is taken away.", maxSmallBody), s.putNamespace)
	register(s, operation("get-namespace", "Namespaces", "Get a namespace",
		"With its quota, and what of it is used.", 0), s.getNamespace)
	register(s, operation("delete-namespace", "Namespaces", "Delete a namespace",
		"Removes the namespace with everything in it.", 0), s.deleteNamespace)
	register(s, operation("list-namespaces", "Namespaces", "List the namespaces",
		"The namespaces that the agent manages and the customer's policy lets the Runner see.", 0), s.listNamespaces)
}

func (s *server) putNamespace(ctx context.Context, in *struct {
	params.Namespace
	params.Write
	Body runnerapi.NamespaceSpec
}) (*namespaceOutput, error) {
	if err := invalid(append(in.Body.Validate(), in.Body.Mistakes()...)); err != nil {
		return nil, err
	}
	if in.Body.Adopt {
		if err := s.bring(ctx, func(i *runnerapi.Intent) { i.Command, i.Access = runnerapi.AdoptNamespace, runnerapi.Named }); err != nil {
			return nil, err
		}
	}
	ns, err := s.Namespaces.PutNamespace(ctx, in.Namespace.Namespace, in.Body, s.writeOptions(ctx, in.Write))
	return &namespaceOutput{Body: ns}, err
}

func (s *server) getNamespace(ctx context.Context, in *params.Namespace) (*namespaceOutput, error) {
	ns, err := s.Namespaces.GetNamespace(ctx, in.Namespace)
	return &namespaceOutput{Body: ns}, err
}

func (s *server) deleteNamespace(ctx context.Context, in *struct {
	params.Namespace
	params.Write
}) (*emptyOutput, error) {
	return &emptyOutput{}, s.Namespaces.DeleteNamespace(ctx, in.Namespace.Namespace, s.writeOptions(ctx, in.Write))
}

func (s *server) listNamespaces(ctx context.Context, _ *struct{}) (*namespaceListOutput, error) {
	items, err := s.Namespaces.ListNamespaces(ctx)
	items = seen(ctx, s, items, func(n runnerapi.Namespace) string { return n.Name })
	return &namespaceListOutput{Body: runnerapi.NamespaceList{Items: notNil(items)}}, err
}

func (s *server) clusterRoutes() {
	register(s, operation("get-cluster", "Cluster", "Describe the cluster",
		"Nodes, pods, capacity and use.", 0), func(ctx context.Context, _ *struct{}) (*clusterOutput, error) {
		cluster, err := s.Clusters.Cluster(ctx)
		return &clusterOutput{Body: cluster}, err
	})
}
