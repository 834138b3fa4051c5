package agent

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/internal/kube"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server"
)

// contents is where the Secrets and ConfigMaps of one sibling meet the Apps of
// the other: what was written restarts the Apps that asked for it.
type contents struct {
	*kube.Client
	engine *app.Engine
}

var (
	_ server.Secrets    = contents{}
	_ server.ConfigMaps = contents{}
)

// PutSecret implements server.Secrets.
func (c contents) PutSecret(ctx context.Context, key runnerapi.Key, spec runnerapi.SecretSpec, opts runnerapi.WriteOptions) (runnerapi.Secret, error) {
	s, err := c.Client.PutSecret(ctx, key, spec, opts)
	if err != nil || opts.DryRun {
		return s, err
	}
	return s, c.engine.ContentChanged(ctx, runnerapi.RestartOnSecrets, key)
}

// PutConfigMap implements server.ConfigMaps.
func (c contents) PutConfigMap(ctx context.Context, key runnerapi.Key, spec runnerapi.ConfigMapSpec, opts runnerapi.WriteOptions) (runnerapi.ConfigMap, error) {
	cm, err := c.Client.PutConfigMap(ctx, key, spec, opts)
	if err != nil || opts.DryRun {
		return cm, err
	}
	return cm, c.engine.ContentChanged(ctx, runnerapi.RestartOnConfigMaps, key)
}
