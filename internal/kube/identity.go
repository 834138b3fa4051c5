package kube

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
)

// identitySecret keeps the agent's identity over restarts.
const identitySecret = "pipeops-agent-identity" //nolint:gosec // a name

// Identity is the Secret that holds the agent's identity. The agent defines its content.
type Identity struct{ k *Client }

// IdentityStore returns the store of the agent's identity.
func (k *Client) IdentityStore() Identity { return Identity{k} }

// Load returns what was saved, and its version. If nothing was saved, the version is "".
func (i Identity) Load(ctx context.Context) (map[string][]byte, string, error) {
	s := &corev1.Secret{}
	err := i.k.client.Get(ctx, i.key(), s)
	if apierrors.IsNotFound(err) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("read the agent's identity from secret %s: %w", i.key(), err)
	}
	return s.Data, s.ResourceVersion, nil
}

// Save replaces that version. It returns false when there is another one by now, which is another
// replica's.
func (i Identity) Save(ctx context.Context, data map[string][]byte, version string) (bool, error) {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: i.key().Namespace, Name: i.key().Name, Labels: objectmeta.Labels(), ResourceVersion: version},
		Data:       data,
	}
	var err error
	if version == "" {
		err = i.k.client.Create(ctx, s, client.FieldOwner(objectmeta.FieldManager))
	} else {
		err = i.k.client.Update(ctx, s, client.FieldOwner(objectmeta.FieldManager))
	}
	switch {
	case apierrors.IsAlreadyExists(err), apierrors.IsConflict(err), apierrors.IsNotFound(err) && version != "":
		return false, nil
	case err != nil:
		return false, fmt.Errorf("keep the agent's identity in secret %s: %w", i.key(), err)
	}
	return true, nil
}

// String returns where the identity is, for messages.
func (i Identity) String() string { return "secret " + i.key().String() }

func (i Identity) key() client.ObjectKey {
	return client.ObjectKey{Namespace: i.k.opts.Namespace, Name: identitySecret}
}
