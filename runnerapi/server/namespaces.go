package server

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/params"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/guard"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/request"
)

type (
	namespaceOutput     struct{ Body runnerapi.Namespace }
	namespaceListOutput struct{ Body runnerapi.NamespaceList }
)

// namespaceCalls are the calls about namespaces.
type namespaceCalls struct {
	*calls
	namespaces backend.Namespaces
}

func (s *namespaceCalls) routes() {
	register(s.calls, operation("put-namespace", "Namespaces", "Set a namespace",
		"Creates the namespace or updates its labels, quota, default limits and network policy; from then on the agent manages it. "+
			"What is not given is taken away.", request.MaxSmallBody), s.putNamespace)
	register(s.calls, operation("get-namespace", "Namespaces", "Get a namespace",
		"With its quota, and what of it is used.", 0), s.getNamespace)
	register(s.calls, operation("delete-namespace", "Namespaces", "Delete a namespace",
		"Removes the namespace with everything in it.", 0), s.deleteNamespace)
	register(s.calls, operation("list-namespaces", "Namespaces", "List the namespaces",
		"The namespaces that the agent manages and the customer's policy lets the Runner see.", 0), s.listNamespaces)
}

func (s *namespaceCalls) putNamespace(ctx context.Context, in *struct {
	params.Namespace
	params.Write
	Body runnerapi.NamespaceSpec
}) (*namespaceOutput, error) {
	if err := invalid(append(in.Body.Validate(), in.Body.Mistakes()...)); err != nil {
		return nil, err
	}
	if in.Body.Adopt {
		if err := s.guard.Bring(ctx, func(i *runnerapi.Intent) { i.Command, i.Access = runnerapi.AdoptNamespace, runnerapi.Named }); err != nil {
			return nil, err
		}
	}
	ns, err := s.namespaces.Set(ctx, in.Namespace.Namespace, in.Body, s.writeOptions(ctx, in.Write))
	return &namespaceOutput{Body: ns}, err
}

func (s *namespaceCalls) getNamespace(ctx context.Context, in *params.Namespace) (*namespaceOutput, error) {
	ns, err := s.namespaces.Get(ctx, in.Namespace)
	return &namespaceOutput{Body: ns}, err
}

func (s *namespaceCalls) deleteNamespace(ctx context.Context, in *struct {
	params.Namespace
	params.Write
}) (*emptyOutput, error) {
	return &emptyOutput{}, s.namespaces.Delete(ctx, in.Namespace.Namespace, s.writeOptions(ctx, in.Write))
}

func (s *namespaceCalls) listNamespaces(ctx context.Context, in *struct {
	params.Page
	LabelSelector string `query:"labelSelector" maxLength:"1024" doc:"Labels that a namespace has, as kubectl's -l takes them." example:"env=prod"`
}) (*namespaceListOutput, error) {
	items, err := s.namespaces.List(ctx)
	items = guard.Seen(ctx, s.guard, items, func(n runnerapi.Namespace) string { return n.Name })
	if err == nil {
		items, err = selected(in.LabelSelector, items, func(n runnerapi.Namespace) map[string]string { return n.Labels })
	}
	items, rest, err := paged(in.Page, items, err, func(o runnerapi.Namespace) string { return keyOf(o.Name) })
	return &namespaceListOutput{Body: runnerapi.NamespaceList{Items: items, Page: rest}}, err
}
