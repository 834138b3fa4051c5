package kube

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/managed"
)

// identitySecret keeps the agent's identity over restarts.
const identitySecret = "pipeops-agent-identity" //nolint:gosec // a name

// Identity is the Secret that keeps the agent's identity. What is in it is the
// agent's business.
type Identity struct{ k *Client }

// IdentityStore answers the store of the agent's identity.
func (k *Client) IdentityStore() Identity { return Identity{k} }

// Load reads what was saved, or nothing when there is none yet.
func (i Identity) Load(ctx context.Context) (map[string][]byte, error) {
	s := &corev1.Secret{}
	err := i.k.client.Get(ctx, i.key(), s)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the agent's identity from secret %s: %w", i.key(), err)
	}
	return s.Data, nil
}

// Save replaces what is there.
func (i Identity) Save(ctx context.Context, data map[string][]byte) error {
	err := retry.OnError(retry.DefaultBackoff, raced, func() error {
		s := &corev1.Secret{}
		err := i.k.client.Get(ctx, i.key(), s)
		if apierrors.IsNotFound(err) {
			s.ObjectMeta = metav1.ObjectMeta{Namespace: i.key().Namespace, Name: i.key().Name, Labels: managed.Labels()}
			s.Data = data
			return i.k.client.Create(ctx, s, client.FieldOwner(managed.FieldManager))
		}
		if err != nil {
			return err
		}
		s.Data = data
		return i.k.client.Update(ctx, s, client.FieldOwner(managed.FieldManager))
	})
	if err != nil {
		return fmt.Errorf("keep the agent's identity in secret %s: %w", i.key(), err)
	}
	return nil
}

// String says where the identity is, for messages.
func (i Identity) String() string { return "secret " + i.key().String() }

func (i Identity) key() client.ObjectKey {
	return client.ObjectKey{Namespace: i.k.opts.Namespace, Name: identitySecret}
}
