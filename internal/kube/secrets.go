package kube

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func (k Contents) secrets() objects[*corev1.Secret] {
	return objects[*corev1.Secret]{k.Client, "secret", "secret", func() *corev1.Secret { return &corev1.Secret{} }}
}

// PutSecret creates the Secret or replaces all its keys.
func (k Contents) PutSecret(ctx context.Context, key runnerapi.Key, spec runnerapi.SecretSpec, opts runnerapi.WriteOptions) (runnerapi.Secret, error) {
	if err := k.admit(ctx, key.Namespace); err != nil {
		return runnerapi.Secret{}, err
	}
	data, err := checkSecret(&spec)
	if err != nil {
		return runnerapi.Secret{}, err
	}
	s, err := k.secrets().put(ctx, key, opts, func(s *corev1.Secret) error {
		if s.Type != "" && string(s.Type) != spec.Type {
			return problem.Errorf(problem.Conflict, "delete the secret first, or write it under another name",
				"secret %s has type %s, and Kubernetes does not let a type change", key, s.Type).WithField("type")
		}
		s.Type, s.Data = corev1.SecretType(spec.Type), data
		return nil
	})
	if err != nil {
		return runnerapi.Secret{}, err
	}
	return k.describe(ctx, s)
}

// GetSecret returns what may be revealed about a Secret.
func (k Contents) GetSecret(ctx context.Context, key runnerapi.Key) (runnerapi.Secret, error) {
	s, err := k.secrets().read(ctx, key)
	if err != nil {
		return runnerapi.Secret{}, err
	}
	return k.describe(ctx, s)
}

// ListSecrets returns all Secrets in a namespace that came through the agent, without their values.
func (k Contents) ListSecrets(ctx context.Context, namespace string) ([]runnerapi.Secret, error) {
	all := []runnerapi.Secret{}
	err := k.secrets().list(ctx, namespace, &corev1.SecretList{}, func(list client.ObjectList) error {
		for i := range list.(*corev1.SecretList).Items {
			s, err := k.describe(ctx, &list.(*corev1.SecretList).Items[i])
			if err != nil {
				return err
			}
			all = append(all, s)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b runnerapi.Secret) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// DeleteSecret deletes a Secret that came through the agent.
func (k Contents) DeleteSecret(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) error {
	return k.secrets().remove(ctx, key, opts)
}
