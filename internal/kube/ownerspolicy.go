package kube

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// PolicyConfigMap is the ConfigMap with the cluster owner's policy about Runners.
const PolicyConfigMap = "pipeops-policy"

const fixPolicyRights = "apply the agent's manifest of this version, which grants it"

// PolicySource names the policy's ConfigMap, for messages.
func (k *Client) PolicySource() string {
	return "ConfigMap " + k.opts.Namespace + "/" + PolicyConfigMap
}

// ReadPolicy reads the policy's ConfigMap once; nil if there is none.
func (k *Client) ReadPolicy(ctx context.Context) (map[string]string, error) {
	list := &corev1.ConfigMapList{}
	err := k.client.List(ctx, list, client.InNamespace(k.opts.Namespace), client.MatchingFields{metav1.ObjectNameField: PolicyConfigMap})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", k.PolicySource(), err)
	}
	if len(list.Items) == 0 {
		return nil, nil
	}
	return policyData(&list.Items[0]), nil
}

// policyDocument is the key of the policy's ConfigMap that has the rules, and policyPreset that of
// the name of a preset.
const policyDocument, policyPreset = "policy.yaml", "preset"

// EditPolicy changes the text of the policy, with the owner's rights: the agent has none for that.
// edit gets the text and the preset beside it. It is called again if others change the policy at
// the same time.
func (k *Client) EditPolicy(ctx context.Context, edit func(text []byte, preset string) ([]byte, error)) error {
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: k.opts.Namespace, Name: PolicyConfigMap}}
		err := k.client.Get(ctx, client.ObjectKeyFromObject(cm), cm)
		missing := apierrors.IsNotFound(err)
		if err != nil && !missing {
			return err
		}
		before := cm.Data[policyDocument]
		text, err := edit([]byte(before), cm.Data[policyPreset])
		if err != nil || string(text) == before {
			return err
		}
		if cm.Data == nil {
			cm.Data = map[string]string{}
		}
		cm.Data[policyDocument] = string(text)
		if missing {
			return k.client.Create(ctx, cm)
		}
		return k.client.Update(ctx, cm)
	})
	if err != nil {
		return fmt.Errorf("change %s: %w", k.PolicySource(), err)
	}
	return nil
}

// WatchPolicy calls set with the data of the policy's ConfigMap, nil if there is none, and again
// after each change, until ctx ends. It calls set with an error if the agent may no longer read the
// ConfigMap. While the API server cannot be reached, no change arrives, and nothing can be done in
// the cluster either.
func (k *Client) WatchPolicy(ctx context.Context, set func(map[string]string, error)) error {
	selector := fields.OneTermEqualSelector(metav1.ObjectNameField, PolicyConfigMap)
	source := cache.NewListWatchFromClient(k.rest, "configmaps", k.opts.Namespace, selector)
	refused := func(err error) error {
		if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			set(nil, problem.Errorf(problem.Forbidden, fixPolicyRights, "%s may not be read: %v", k.PolicySource(), err))
		}
		return err
	}
	heard := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			list, err := source.ListWithContext(ctx, opts)
			return list, refused(err)
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			w, err := source.WatchWithContext(ctx, opts)
			return w, refused(err)
		},
	}
	cache.NewReflectorWithOptions(heard, &corev1.ConfigMap{}, &policyStore{set: set},
		cache.ReflectorOptions{Name: k.PolicySource()}).RunWithContext(ctx)
	return nil
}

// policyStore hands on what a Reflector would keep.
type policyStore struct {
	set func(map[string]string, error)
}

var _ cache.ReflectorStore = (*policyStore)(nil)

// Add implements cache.ReflectorStore.
func (s *policyStore) Add(o any) error { return s.Update(o) }

// Update implements cache.ReflectorStore.
func (s *policyStore) Update(o any) error {
	cm, ok := o.(*corev1.ConfigMap)
	if !ok {
		return fmt.Errorf("%T is not a ConfigMap", o)
	}
	s.set(policyData(cm), nil)
	return nil
}

// Delete implements cache.ReflectorStore.
func (s *policyStore) Delete(any) error {
	s.set(nil, nil)
	return nil
}

// Replace implements cache.ReflectorStore.
func (s *policyStore) Replace(all []any, _ string) error {
	if len(all) == 0 {
		return s.Delete(nil)
	}
	return s.Update(all[0])
}

// Resync implements cache.ReflectorStore.
func (s *policyStore) Resync() error { return nil }

// policyData never returns nil. Keys of binary data count as unknown keys.
func policyData(cm *corev1.ConfigMap) map[string]string {
	data := make(map[string]string, len(cm.Data)+len(cm.BinaryData))
	for key := range cm.BinaryData {
		data[key] = ""
	}
	maps.Copy(data, cm.Data)
	return data
}
