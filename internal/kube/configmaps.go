package kube

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
)

// ConfigMaps are those of Runners. It implements backend.ConfigMaps.
type ConfigMaps struct{ *Client }

var _ backend.ConfigMaps = ConfigMaps{}

// ConfigMaps returns the ConfigMaps of Runners.
func (k *Client) ConfigMaps() ConfigMaps { return ConfigMaps{k} }

func (k ConfigMaps) objects() objects[*corev1.ConfigMap] {
	return objects[*corev1.ConfigMap]{
		k.Client, "config map", "ConfigMap", func() *corev1.ConfigMap { return &corev1.ConfigMap{} },
		func(ctx context.Context, o *corev1.ConfigMap) (string, error) {
			cm, err := k.wireConfigMap(ctx, o, false)
			return cm.Digest, err
		},
	}
}

// Set creates the ConfigMap or replaces all its keys.
func (k ConfigMaps) Set(ctx context.Context, key runnerapi.Key, spec runnerapi.ConfigMapSpec, opts runnerapi.WriteOptions) (runnerapi.ConfigMap, error) {
	if err := k.admit(ctx, key.Namespace); err != nil {
		return runnerapi.ConfigMap{}, err
	}
	if errs := spec.Validate(); len(errs) > 0 {
		return runnerapi.ConfigMap{}, invalid(errs[0].Field, "correct the field", errs[0].Message)
	}
	cm, err := k.objects().put(ctx, key, opts, func(cm *corev1.ConfigMap) error {
		cm.Data, cm.BinaryData = spec.Data, spec.BinaryData
		return nil
	})
	if err != nil {
		return runnerapi.ConfigMap{}, err
	}
	return k.wireConfigMap(ctx, cm, true)
}

// Get reads a ConfigMap that came through the agent, with its values.
func (k ConfigMaps) Get(ctx context.Context, key runnerapi.Key) (runnerapi.ConfigMap, error) {
	cm, err := k.objects().read(ctx, key)
	if err != nil {
		return runnerapi.ConfigMap{}, err
	}
	return k.wireConfigMap(ctx, cm, true)
}

// List returns all ConfigMaps in a namespace that came through the agent, without their
// values.
func (k ConfigMaps) List(ctx context.Context, namespace string) ([]runnerapi.ConfigMap, error) {
	all := []runnerapi.ConfigMap{}
	err := k.objects().list(ctx, namespace, &corev1.ConfigMapList{}, func(list client.ObjectList) error {
		for i := range list.(*corev1.ConfigMapList).Items {
			cm, err := k.wireConfigMap(ctx, &list.(*corev1.ConfigMapList).Items[i], false)
			if err != nil {
				return err
			}
			all = append(all, cm)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b runnerapi.ConfigMap) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// Delete deletes a ConfigMap that came through the agent.
func (k ConfigMaps) Delete(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) error {
	return k.objects().remove(ctx, key, opts)
}

func (k ConfigMaps) wireConfigMap(ctx context.Context, cm *corev1.ConfigMap, values bool) (runnerapi.ConfigMap, error) {
	key, err := k.digests.read(ctx)
	if err != nil {
		return runnerapi.ConfigMap{}, kubeproblem.From(err, "reading the key of the digests")
	}
	data := contentOf(cm)
	out := runnerapi.ConfigMap{
		Namespace: cm.Namespace, Name: cm.Name, Keys: []runnerapi.DataKey{},
		Digest: digest(key, configMapType, data), CreatedAt: cm.CreationTimestamp.Time,
	}
	for _, name := range slices.Sorted(maps.Keys(data)) {
		out.Keys = append(out.Keys, runnerapi.DataKey{Key: name, Size: len(data[name])})
	}
	if values {
		out.Data, out.BinaryData = cm.Data, cm.BinaryData
	}
	return out, nil
}

// configMapType stands in a digest where a Secret has its type.
const configMapType = "ConfigMap"

func contentOf(cm *corev1.ConfigMap) map[string][]byte {
	data := make(map[string][]byte, len(cm.Data)+len(cm.BinaryData))
	for name, value := range cm.Data {
		data[name] = []byte(value)
	}
	maps.Copy(data, cm.BinaryData)
	return data
}

// ContentDigest returns a digest that changes with the content of an object that an App uses,
// whether or not the object is the agent's. It returns an empty string if there is no such object.
func (k Contents) ContentDigest(ctx context.Context, kind runnerapi.RestartTrigger, key runnerapi.Key) (string, error) {
	secret, err := k.digests.read(ctx)
	if err != nil {
		return "", fmt.Errorf("read the key of the digests: %w", err)
	}
	at := client.ObjectKey{Namespace: key.Namespace, Name: key.Name}
	if kind == runnerapi.RestartOnConfigMaps {
		cm := &corev1.ConfigMap{}
		if err := k.client.Get(ctx, at, cm); err != nil {
			return "", client.IgnoreNotFound(err)
		}
		return digest(secret, configMapType, contentOf(cm)), nil
	}
	s := &corev1.Secret{}
	if err := k.client.Get(ctx, at, s); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	return digest(secret, string(s.Type), s.Data), nil
}
