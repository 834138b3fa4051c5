package agent

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/internal/kube"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
)

// contents is where the Secrets and ConfigMaps of one sibling meet the Apps of
// the other: what was written restarts the Apps that asked for it.
type contents struct {
	kube.Contents
	engine *app.Engine
}

var (
	_ backend.Secrets    = contents{}
	_ backend.ConfigMaps = contents{}
)

// PutSecret implements backend.Secrets.
func (c contents) PutSecret(ctx context.Context, key runnerapi.Key, spec runnerapi.SecretSpec, opts runnerapi.WriteOptions) (runnerapi.Secret, error) {
	s, err := c.Contents.PutSecret(ctx, key, spec, opts)
	if err != nil || opts.DryRun {
		return s, err
	}
	return s, c.engine.ContentChanged(ctx, runnerapi.RestartOnSecrets, key)
}

// PutConfigMap implements backend.ConfigMaps.
func (c contents) PutConfigMap(ctx context.Context, key runnerapi.Key, spec runnerapi.ConfigMapSpec, opts runnerapi.WriteOptions) (runnerapi.ConfigMap, error) {
	cm, err := c.Contents.PutConfigMap(ctx, key, spec, opts)
	if err != nil || opts.DryRun {
		return cm, err
	}
	return cm, c.engine.ContentChanged(ctx, runnerapi.RestartOnConfigMaps, key)
}
