package agent

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/internal/kube"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
)

// secrets is where the Secrets of one sibling meet the Apps of the other: what was written restarts
// the Apps that asked for it.
type secrets struct {
	kube.Secrets
	engine *app.Engine
}

// configMaps is the same for ConfigMaps.
type configMaps struct {
	kube.ConfigMaps
	engine *app.Engine
}

var (
	_ backend.Secrets    = secrets{}
	_ backend.ConfigMaps = configMaps{}
)

// Set implements backend.Secrets.
func (s secrets) Set(ctx context.Context, key runnerapi.Key, spec runnerapi.SecretSpec, opts runnerapi.WriteOptions) (runnerapi.Secret, error) {
	secret, err := s.Secrets.Set(ctx, key, spec, opts)
	if err != nil || opts.DryRun {
		return secret, err
	}
	return secret, s.engine.ContentChanged(ctx, runnerapi.RestartOnSecrets, key)
}

// Delete implements backend.Secrets: routes forget at once whom a Secret let in.
func (s secrets) Delete(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) error {
	err := s.Secrets.Delete(ctx, key, opts)
	if err == nil && !opts.DryRun {
		s.engine.SecretChanged(ctx, key)
	}
	return err
}

// Set implements backend.ConfigMaps.
func (c configMaps) Set(ctx context.Context, key runnerapi.Key, spec runnerapi.ConfigMapSpec, opts runnerapi.WriteOptions) (runnerapi.ConfigMap, error) {
	cm, err := c.ConfigMaps.Set(ctx, key, spec, opts)
	if err != nil || opts.DryRun {
		return cm, err
	}
	return cm, c.engine.ContentChanged(ctx, runnerapi.RestartOnConfigMaps, key)
}
