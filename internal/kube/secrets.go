package kube

import (
	"cmp"
	"context"
	"fmt"
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

// pageSize bounds how much of a list is in memory at once.
const pageSize = 100

// PutSecret creates the Secret or replaces all its keys.
func (k *Client) PutSecret(ctx context.Context, key runnerapi.Key, spec runnerapi.SecretSpec, opts runnerapi.WriteOptions) (runnerapi.Secret, error) {
	if err := k.admit(ctx, key.Namespace); err != nil {
		return runnerapi.Secret{}, err
	}
	data, err := checkSecret(&spec)
	if err != nil {
		return runnerapi.Secret{}, err
	}
	var s *corev1.Secret
	err = retry.OnError(retry.DefaultBackoff, raced, func() error {
		var err error
		s, err = k.putSecret(ctx, key, spec.Type, data, opts)
		return err
	})
	if err != nil {
		return runnerapi.Secret{}, kubeproblem.From(err, "writing secret "+key.String())
	}
	return k.describe(ctx, s)
}

func raced(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }

func (k *Client) putSecret(ctx context.Context, key runnerapi.Key, kind string, data map[string][]byte, opts runnerapi.WriteOptions) (*corev1.Secret, error) {
	s := &corev1.Secret{}
	err := k.client.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: key.Name}, s)
	if apierrors.IsNotFound(err) {
		s = &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Labels: managed.Labels()},
			Type:       corev1.SecretType(kind), Data: data,
		}
		sign(s, opts.Caller)
		return s, k.writer(opts).Create(ctx, s, client.FieldOwner(managed.FieldManager))
	}
	if err != nil {
		return nil, err
	}
	if err := own(s); err != nil {
		return nil, err
	}
	if string(s.Type) != kind {
		return nil, problem.Errorf(problem.Conflict, "delete the secret first, or write it under another name",
			"secret %s has type %s, and Kubernetes does not let a type change", key, s.Type).WithField("type")
	}
	s.Data = data
	sign(s, opts.Caller)
	return s, k.writer(opts).Update(ctx, s, client.FieldOwner(managed.FieldManager))
}

// own refuses a Secret that somebody else made.
func own(s *corev1.Secret) error {
	if managed.Is(s) {
		return nil
	}
	return problem.Errorf(problem.Conflict,
		fmt.Sprintf("use another name, or delete the existing one (kubectl -n %s delete secret %s)", s.Namespace, s.Name),
		"secret %s/%s exists and was not made through the agent", s.Namespace, s.Name).WithField("name")
}

// GetSecret tells of a Secret what may be told.
func (k *Client) GetSecret(ctx context.Context, key runnerapi.Key) (runnerapi.Secret, error) {
	s, err := k.readSecret(ctx, key)
	if err != nil {
		return runnerapi.Secret{}, err
	}
	return k.describe(ctx, s)
}

// readSecret answers of foreign Secrets not even that there is one.
func (k *Client) readSecret(ctx context.Context, key runnerapi.Key) (*corev1.Secret, error) {
	if err := k.admit(ctx, key.Namespace); err != nil {
		return nil, err
	}
	s := &corev1.Secret{}
	err := k.client.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: key.Name}, s)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, kubeproblem.From(err, "reading secret "+key.String())
	}
	if err != nil || !managed.Is(s) {
		return nil, problem.Errorf(problem.NotFound, "check the name, or write it first", "there is no secret %s made through the agent", key)
	}
	return s, nil
}

// ListSecrets tells of all Secrets in a namespace that came through the agent.
func (k *Client) ListSecrets(ctx context.Context, namespace string) ([]runnerapi.Secret, error) {
	if err := k.admit(ctx, namespace); err != nil {
		return nil, err
	}
	all := []runnerapi.Secret{}
	err := k.pages(ctx, &corev1.SecretList{}, func(list client.ObjectList) error {
		for i := range list.(*corev1.SecretList).Items {
			s, err := k.describe(ctx, &list.(*corev1.SecretList).Items[i])
			if err != nil {
				return err
			}
			all = append(all, s)
		}
		return nil
	}, client.InNamespace(namespace), client.MatchingLabels(managed.Labels()))
	if err != nil {
		return nil, kubeproblem.From(err, "listing secrets of namespace "+namespace)
	}
	slices.SortFunc(all, func(a, b runnerapi.Secret) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// DeleteSecret deletes a Secret that came through the agent.
func (k *Client) DeleteSecret(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) error {
	s, err := k.readSecret(ctx, key)
	if err != nil {
		return err
	}
	err = k.writer(opts).Delete(ctx, s, client.Preconditions{UID: ptr.To(s.UID)})
	return kubeproblem.From(err, "deleting secret "+key.String())
}

// pages reads a list a part at a time into the same memory.
func (k *Client) pages(ctx context.Context, list client.ObjectList, each func(client.ObjectList) error, opts ...client.ListOption) error {
	next := ""
	for {
		list.SetContinue("")
		if err := k.client.List(ctx, list, append(opts, client.Limit(pageSize), client.Continue(next))...); err != nil {
			return err
		}
		if err := each(list); err != nil {
			return err
		}
		if next = list.GetContinue(); next == "" {
			return nil
		}
	}
}
