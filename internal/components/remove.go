package components

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/kube"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// Remove uninstalls a component that an Installer has installed. Namespaces, volumes and the
// resource definitions of charts stay. A later installation uses the volumes again.
func (i *Installer) Remove(ctx context.Context, cluster Cluster, name string) error {
	c, ok := find(name)
	if !ok {
		return unknown(name)
	}
	installed := cluster.Installed[name]
	if len(installed) == 0 {
		return problem.Errorf(problem.NotFound, "see what is installed: pipeops-agent component list", "component %s was not installed by this command", name)
	}
	if name == ofAlerts { // first, so that a run that breaks off is repeated
		if err := i.removeAlertsToken(ctx, cmp.Or(cluster.AgentNamespace, namespaceSystem)); err != nil {
			return fmt.Errorf("component %s: %w", name, err)
		}
	}
	for _, chart := range slices.Backward(c.Charts) {
		n := slices.IndexFunc(installed, func(r Installed) bool { return r.Name == chart.Name })
		if n < 0 {
			continue
		}
		if err := i.uninstall(ctx, installed[n]); err != nil {
			return fmt.Errorf("component %s: %w", name, err)
		}
	}
	return nil
}

func (i *Installer) uninstall(ctx context.Context, r Installed) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	cfg, err := configuration(i.Config, r.Namespace)
	if err != nil {
		return err
	}
	do := action.NewUninstall(cfg)
	do.Timeout, do.WaitStrategy, do.DisableHooks, do.IgnoreNotFound = applyTimeout, kube.HookOnlyStrategy, true, true
	_, err = do.Run(r.Name)
	return translated(err, "uninstalling release "+r.Name)
}
