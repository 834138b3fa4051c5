package kube

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
)

// Secrets are those of Runners. It implements backend.Secrets.
type Secrets struct{ *Client }

var _ backend.Secrets = Secrets{}

// Secrets returns the Secrets of Runners.
func (k *Client) Secrets() Secrets { return Secrets{k} }

func (k Secrets) objects() objects[*corev1.Secret] {
	return objects[*corev1.Secret]{
		k.Client, "secret", "Secret", func() *corev1.Secret { return &corev1.Secret{} },
		func(ctx context.Context, o *corev1.Secret) (string, error) {
			s, err := k.describe(ctx, o)
			return s.Digest, err
		},
	}
}

// Set creates the Secret or replaces all its keys.
func (k Secrets) Set(ctx context.Context, key runnerapi.Key, spec runnerapi.SecretSpec, opts runnerapi.WriteOptions) (runnerapi.Secret, error) {
	if err := k.admit(ctx, key.Namespace); err != nil {
		return runnerapi.Secret{}, err
	}
	data, err := checkSecret(&spec)
	if err != nil {
		return runnerapi.Secret{}, err
	}
	s, err := k.objects().put(ctx, key, opts, func(s *corev1.Secret) error {
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

// Get returns what may be revealed about a Secret.
func (k Secrets) Get(ctx context.Context, key runnerapi.Key) (runnerapi.Secret, error) {
	s, err := k.objects().read(ctx, key)
	if err != nil {
		return runnerapi.Secret{}, err
	}
	return k.describe(ctx, s)
}

// PullSecret returns the logins in a Secret of a managed namespace, as .dockerconfigjson; nil if it
// is none with logins. The API server is asked, as images of a new Secret may come with it.
func (k Secrets) PullSecret(ctx context.Context, namespace, name string) ([]byte, error) {
	if err := k.admit(ctx, namespace); err != nil {
		return nil, err
	}
	s := &corev1.Secret{}
	if err := k.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, s); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if s.Type != corev1.SecretTypeDockerConfigJson {
		return nil, nil
	}
	return s.Data[corev1.DockerConfigJsonKey], nil
}

// List returns all Secrets in a namespace that came through the agent, without their values.
func (k Secrets) List(ctx context.Context, namespace string) ([]runnerapi.Secret, error) {
	all := []runnerapi.Secret{}
	err := k.objects().list(ctx, namespace, &corev1.SecretList{}, func(list client.ObjectList) error {
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

// Delete deletes a Secret that came through the agent.
func (k Secrets) Delete(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) error {
	return k.objects().remove(ctx, key, opts)
}
