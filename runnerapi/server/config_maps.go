package server

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/params"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
)

type (
	configMapOutput     struct{ Body runnerapi.ConfigMap }
	configMapListOutput struct{ Body runnerapi.ConfigMapList }
)

// configMapCalls are the calls about ConfigMaps.
type configMapCalls struct {
	*calls
	configMaps backend.ConfigMaps
}

func (s *configMapCalls) routes() {
	register(s.calls, operation("put-config-map", "ConfigMaps", "Set a ConfigMap",
		"Creates the ConfigMap or replaces all its keys. Apps that use it restart where their spec says restartOn: [configMaps].",
		runnerapi.MaxSecretBody), s.putConfigMap)
	register(s.calls, operation("get-config-map", "ConfigMaps", "Get a ConfigMap",
		"With its values.", 0), s.getConfigMap)
	register(s.calls, operation("delete-config-map", "ConfigMaps", "Delete a ConfigMap",
		"Removes a ConfigMap that came through the agent. Pods that run keep what they took from it.", 0), s.deleteConfigMap)
	register(s.calls, operation("list-config-maps", "ConfigMaps",
		"List the ConfigMaps of a namespace", "Those that the agent manages: keys and sizes, no values.", 0), s.listConfigMaps)
}

func (s *configMapCalls) putConfigMap(ctx context.Context, in *struct {
	params.Object
	params.Write
	params.Replace
	Body runnerapi.ConfigMapSpec
}) (*configMapOutput, error) {
	if err := invalid(in.Body.Validate()); err != nil {
		return nil, err
	}
	opts := s.writeOptions(ctx, in.Write)
	opts.Digest = in.Digest()
	cm, err := s.configMaps.Set(ctx, objectKey(in.Object), in.Body, opts)
	return &configMapOutput{Body: cm}, err
}

func (s *configMapCalls) getConfigMap(ctx context.Context, in *params.Object) (*configMapOutput, error) {
	cm, err := s.configMaps.Get(ctx, objectKey(*in))
	return &configMapOutput{Body: cm}, err
}

func (s *configMapCalls) deleteConfigMap(ctx context.Context, in *struct {
	params.Object
	params.Write
}) (*emptyOutput, error) {
	return &emptyOutput{}, s.configMaps.Delete(ctx, objectKey(in.Object), s.writeOptions(ctx, in.Write))
}

func (s *configMapCalls) listConfigMaps(ctx context.Context, in *struct {
	params.Namespace
	params.Page
}) (*configMapListOutput, error) {
	items, err := s.configMaps.List(ctx, in.Namespace.Namespace)
	items, rest, err := paged(in.Page, items, err, func(o runnerapi.ConfigMap) string { return keyOf(o.Namespace, o.Name) })
	return &configMapListOutput{Body: runnerapi.ConfigMapList{Items: items, Page: rest}}, err
}
