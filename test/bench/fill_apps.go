package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/cluster"
)

const healthyInterval = 5 * time.Second

// fillApps deploys the Apps into namespaces whose pods go to simulated nodes,
// and waits until all are healthy and the agent has nothing left to do for them.
func (b *bench) fillApps(ctx context.Context) error {
	for i := range b.Namespaces {
		if err := b.simulatedNamespace(ctx, b.app(i).Namespace); err != nil {
			return err
		}
	}
	err := b.each(ctx, b.Apps, "deployed", func(ctx context.Context, i int) error {
		_, err := b.client.Apps().Deploy(ctx, b.app(i), b.spec(0), runnerapi.WriteOptions{})
		return err
	})
	if err != nil {
		return err
	}
	if err := b.awaitHealthy(ctx); err != nil {
		return err
	}
	return b.awaitAnnounced(ctx)
}

// app names the App of a number; beyond the last comes the first again.
func (b *bench) app(i int) runnerapi.Key {
	i %= b.Apps
	return runnerapi.Key{Namespace: fmt.Sprintf("apps-%d", i%b.Namespaces), Name: fmt.Sprintf("app-%d", i)}
}

// spec returns an ordinary App: a port and so a Service, a few variables, a probe, requests and
// limits. Each version of it is another spec.
func (b *bench) spec(version int) runnerapi.AppSpec {
	return runnerapi.AppSpec{
		Image: b.image, Replicas: new(int32(b.Replicas)),
		Ports: []runnerapi.Port{{Name: "http", Port: 8080}},
		Env: []runnerapi.EnvVar{
			{Name: versionVariable, Value: fmt.Sprint(version)}, {Name: "MODE", Value: "production"},
			{Name: "UPSTREAM", Value: "http://upstream.example.svc:8080/api"},
		},
		Resources: runnerapi.Resources{
			Requests: runnerapi.ResourceAmounts{CPU: "50m", Memory: "64Mi"}, Limits: runnerapi.ResourceAmounts{Memory: "128Mi"},
		},
		Probes: runnerapi.Probes{Readiness: &runnerapi.Probe{HTTP: &runnerapi.HTTPProbe{Path: "/healthz", Port: 8080}}},
	}
}

// simulatedNamespace lets the agent create a namespace and sends its pods to simulated nodes.
func (b *bench) simulatedNamespace(ctx context.Context, name string) error {
	if _, err := b.client.Namespaces().Set(ctx, name, runnerapi.NamespaceSpec{}, runnerapi.WriteOptions{}); err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": cluster.Simulate()}})
	if err != nil {
		return err
	}
	_, err = b.kube.CoreV1().Namespaces().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// awaitHealthy waits until the agent reports that all Apps are healthy.
func (b *bench) awaitHealthy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, fillTimeout)
	defer cancel()
	tick := time.NewTicker(healthyInterval)
	defer tick.Stop()
	for {
		apps, err := b.client.Apps().List(ctx, "")
		if err != nil {
			return err
		}
		healthy := 0
		for _, a := range apps {
			if a.Settled() && a.Status.Phase == runnerapi.PhaseHealthy {
				healthy++
			}
		}
		if healthy == len(apps) && healthy >= b.Apps {
			return nil
		}
		b.say("%d of %d healthy", healthy, b.Apps)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(ctx.Err(), fmt.Errorf("%d of %d Apps are healthy", healthy, b.Apps))
		}
	}
}

// awaitAnnounced waits until the agent has reported to the control plane that all Apps are healthy,
// which is its last step of a rollout. The next measurement is of an agent beside these Apps, and
// not of one that is still creating them.
func (b *bench) awaitAnnounced(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, fillTimeout)
	defer cancel()
	for {
		left, err := b.unannounced(ctx)
		if err != nil || left == 0 {
			return err
		}
		b.say("%d of %d announced", b.Apps-left, b.Apps)
		select {
		case <-time.After(healthyInterval):
		case <-ctx.Done():
			return errors.Join(ctx.Err(), fmt.Errorf("%d Apps were not announced", left))
		}
	}
}

// unannounced counts the Apps whose last state the control plane has not received.
func (b *bench) unannounced(ctx context.Context) (int, error) {
	raw, err := b.kube.CoreV1().RESTClient().Get().AbsPath("/apis/pipeops.io/v1alpha1/apps").DoRaw(ctx)
	if err != nil {
		return 0, err
	}
	var list struct {
		Items []struct {
			Status struct {
				Phase     runnerapi.Phase `json:"phase"`
				Announced struct {
					Phase runnerapi.Phase `json:"phase"`
				} `json:"announced"`
			} `json:"status"`
		} `json:"items"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return 0, fmt.Errorf("list of Apps: %w", err)
	}
	left := 0
	for _, a := range list.Items {
		if a.Status.Announced.Phase != a.Status.Phase {
			left++
		}
	}
	return left, nil
}
