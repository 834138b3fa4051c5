package kube

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/managed"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// PutConfigMap creates the ConfigMap or replaces all its keys.
func (k *Client) PutConfigMap(ctx context.Context, key runnerapi.Key, spec runnerapi.ConfigMapSpec, opts runnerapi.WriteOptions) (runnerapi.ConfigMap, error) {
	if err := k.admit(ctx, key.Namespace); err != nil {
		return runnerapi.ConfigMap{}, err
	}
	if errs := spec.Validate(); len(errs) > 0 {
		return runnerapi.ConfigMap{}, invalid(errs[0].Field, "correct the field", errs[0].Message)
	}
	var cm *corev1.ConfigMap
	err := retry.OnError(retry.DefaultBackoff, raced, func() error {
		var err error
		cm, err = k.putConfigMap(ctx, key, spec, opts)
		return err
	})
	if err != nil {
		return runnerapi.ConfigMap{}, kubeproblem.From(err, "writing config map "+key.String())
	}
	return k.wireConfigMap(ctx, cm, true)
}

func (k *Client) putConfigMap(ctx context.Context, key runnerapi.Key, spec runnerapi.ConfigMapSpec, opts runnerapi.WriteOptions) (*corev1.ConfigMap, error) {
	cm := &corev1.ConfigMap{}
	err := k.client.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: key.Name}, cm)
	missing := apierrors.IsNotFound(err)
	switch {
	case missing:
		cm = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Labels: managed.Labels()}}
	case err != nil:
		return nil, err
	case !managed.Is(cm):
		return nil, problem.Errorf(problem.Conflict,
			fmt.Sprintf("use another name, or delete the existing one (kubectl -n %s delete configmap %s)", key.Namespace, key.Name),
			"config map %s exists and was not made through the agent", key).WithField("name")
	}
	cm.Data, cm.BinaryData = spec.Data, spec.BinaryData
	sign(cm, opts.Caller)
	if missing {
		return cm, k.writer(opts).Create(ctx, cm, client.FieldOwner(managed.FieldManager))
	}
	return cm, k.writer(opts).Update(ctx, cm, client.FieldOwner(managed.FieldManager))
}

// GetConfigMap reads a ConfigMap that came through the agent, with its values.
func (k *Client) GetConfigMap(ctx context.Context, key runnerapi.Key) (runnerapi.ConfigMap, error) {
	cm, err := k.readConfigMap(ctx, key)
	if err != nil {
		return runnerapi.ConfigMap{}, err
	}
	return k.wireConfigMap(ctx, cm, true)
}

// readConfigMap answers of foreign ConfigMaps not even that there is one.
func (k *Client) readConfigMap(ctx context.Context, key runnerapi.Key) (*corev1.ConfigMap, error) {
	if err := k.admit(ctx, key.Namespace); err != nil {
		return nil, err
	}
	cm := &corev1.ConfigMap{}
	err := k.client.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: key.Name}, cm)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, kubeproblem.From(err, "reading config map "+key.String())
	}
	if err != nil || !managed.Is(cm) {
		return nil, problem.Errorf(problem.NotFound, "check the name, or write it first", "there is no config map %s made through the agent", key)
	}
	return cm, nil
}

// ListConfigMaps tells of all ConfigMaps in a namespace that came through the
// agent, without their values.
func (k *Client) ListConfigMaps(ctx context.Context, namespace string) ([]runnerapi.ConfigMap, error) {
	if err := k.admit(ctx, namespace); err != nil {
		return nil, err
	}
	all := []runnerapi.ConfigMap{}
	err := k.pages(ctx, &corev1.ConfigMapList{}, func(list client.ObjectList) error {
		for i := range list.(*corev1.ConfigMapList).Items {
			cm, err := k.wireConfigMap(ctx, &list.(*corev1.ConfigMapList).Items[i], false)
			if err != nil {
				return err
			}
			all = append(all, cm)
		}
		return nil
	}, client.InNamespace(namespace), client.MatchingLabels(managed.Labels()))
	if err != nil {
		return nil, kubeproblem.From(err, "listing config maps of namespace "+namespace)
	}
	slices.SortFunc(all, func(a, b runnerapi.ConfigMap) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// DeleteConfigMap deletes a ConfigMap that came through the agent.
func (k *Client) DeleteConfigMap(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) error {
	cm, err := k.readConfigMap(ctx, key)
	if err != nil {
		return err
	}
	err = k.writer(opts).Delete(ctx, cm, client.Preconditions{UID: ptr.To(cm.UID)})
	return kubeproblem.From(err, "deleting config map "+key.String())
}

func (k *Client) wireConfigMap(ctx context.Context, cm *corev1.ConfigMap, values bool) (runnerapi.ConfigMap, error) {
	key, err := k.keyOfDigests(ctx)
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

// ContentDigest tells whether an object that an App uses has a new content, be
// it the agent's or not. It is empty where there is no such object.
func (k *Client) ContentDigest(ctx context.Context, kind runnerapi.RestartTrigger, key runnerapi.Key) (string, error) {
	secret, err := k.keyOfDigests(ctx)
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
