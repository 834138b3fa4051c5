package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
)

// EnrolmentKey is the key of the enrolment token in its Secret.
const EnrolmentKey = "AGENT_TOKEN"

// EnrolmentSecret is the Secret in the agent's namespace that contains the enrolment token.
type EnrolmentSecret struct {
	k    *Client
	name string
}

// EnrolmentSecret returns the Secret of that name.
func (k *Client) EnrolmentSecret(name string) EnrolmentSecret { return EnrolmentSecret{k, name} }

// Token returns the token in the Secret; empty if there is none.
func (e EnrolmentSecret) Token(ctx context.Context) (string, error) {
	s, err := e.read(ctx)
	return tokenIn(s), err
}

// Remove removes only this token from the Secret. A token that has replaced it stays: it is for a
// later registration. Remove reports whether this token is gone.
func (e EnrolmentSecret) Remove(ctx context.Context, token string) (removed bool, err error) {
	s, err := e.read(ctx)
	if err != nil || tokenIn(s) != token {
		return false, err
	}
	// With the version, the API server refuses the patch if the Secret was written in between.
	metadata := map[string]any{"resourceVersion": s.ResourceVersion}
	if _, applied := s.Annotations[corev1.LastAppliedConfigAnnotation]; applied { // by kubectl: a copy of the data
		metadata["annotations"] = map[string]any{corev1.LastAppliedConfigAnnotation: nil}
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata, "data": map[string]any{EnrolmentKey: nil}})
	if err != nil {
		return false, err
	}
	err = e.k.client.Patch(ctx, s, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(objectmeta.FieldManager))
	if err != nil {
		return false, fmt.Errorf("remove the enrolment token from %s: %w", e, err)
	}
	return true, nil
}

// String names the Secret, for messages.
func (e EnrolmentSecret) String() string { return "secret " + e.key().String() }

func (e EnrolmentSecret) key() client.ObjectKey {
	return client.ObjectKey{Namespace: e.k.opts.Namespace, Name: e.name}
}

func (e EnrolmentSecret) read(ctx context.Context) (*corev1.Secret, error) {
	s := &corev1.Secret{}
	err := e.k.client.Get(ctx, e.key(), s)
	if err = client.IgnoreNotFound(err); err != nil {
		return s, fmt.Errorf("read %s: %w", e, err)
	}
	return s, nil
}

// tokenIn trims as the agent does with its configured token.
func tokenIn(s *corev1.Secret) string { return strings.TrimSpace(string(s.Data[EnrolmentKey])) }

// Changed reports whether an error means that another client wrote the object in between.
func Changed(err error) bool { return apierrors.IsConflict(err) }
