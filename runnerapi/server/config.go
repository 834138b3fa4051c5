package server

import (
	"context"
	"net/http"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/params"
)

type (
	configMapOutput     struct{ Body runnerapi.ConfigMap }
	configMapListOutput struct{ Body runnerapi.ConfigMapList }
	metricsOutput       struct{ Body runnerapi.AppMetrics }
)

func (s *server) configMapRoutes() {
	register(s, operation("put-config-map", "ConfigMaps", "Set a ConfigMap",
		"Creates the ConfigMap or replaces all its keys. Apps that use it restart where their spec says restartOn: [configMaps].",
		runnerapi.MaxSecretBody), s.putConfigMap)
	register(s, operation("get-config-map", "ConfigMaps", "Get a ConfigMap",
		"With its values.", 0), s.getConfigMap)
	register(s, operation("delete-config-map", "ConfigMaps", "Delete a ConfigMap",
		"Removes a ConfigMap that came through the agent. Pods that run keep what they took from it.", 0), s.deleteConfigMap)
	register(s, operation("list-config-maps", "ConfigMaps",
		"List the ConfigMaps of a namespace", "Those that the agent manages: keys and sizes, no values.", 0), s.listConfigMaps)
}

func (s *server) putConfigMap(ctx context.Context, in *struct {
	params.Object
	params.Write
	Body runnerapi.ConfigMapSpec
}) (*configMapOutput, error) {
	if err := invalid(in.Body.Validate()); err != nil {
		return nil, err
	}
	cm, err := s.ConfigMaps.PutConfigMap(ctx, objectKey(in.Object), in.Body, s.writeOptions(ctx, in.Write))
	return &configMapOutput{Body: cm}, err
}

func (s *server) getConfigMap(ctx context.Context, in *params.Object) (*configMapOutput, error) {
	cm, err := s.ConfigMaps.GetConfigMap(ctx, objectKey(*in))
	return &configMapOutput{Body: cm}, err
}

func (s *server) deleteConfigMap(ctx context.Context, in *struct {
	params.Object
	params.Write
}) (*emptyOutput, error) {
	return &emptyOutput{}, s.ConfigMaps.DeleteConfigMap(ctx, objectKey(in.Object), s.writeOptions(ctx, in.Write))
}

func (s *server) listConfigMaps(ctx context.Context, in *params.Namespace) (*configMapListOutput, error) {
	items, err := s.ConfigMaps.ListConfigMaps(ctx, in.Namespace)
	return &configMapListOutput{Body: runnerapi.ConfigMapList{Items: notNil(items)}}, err
}

func (s *server) metricsRoutes() {
	op := alsoRefuses(operation("get-app-metrics", "Apps", "Get an App's metrics",
		"CPU and memory that its containers use against their requests and limits, by metrics-server; and the requests that would "+
			"fit, with the figures they stand on. Without metrics-server: 501.", 0), http.StatusNotImplemented)
	register(s, op, func(ctx context.Context, in *params.App) (*metricsOutput, error) {
		m, err := s.Meter.Metrics(ctx, appKey(*in))
		return &metricsOutput{Body: m}, err
	})
}
