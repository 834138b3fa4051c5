package kube

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// digestSecret holds the key of the digests. It never leaves the cluster, so a digest reveals
// nothing about a value, even to a client that could guess it.
const (
	digestSecret = "pipeops-agent-digest" //nolint:gosec // a name
	digestField  = "key"
	digestBytes  = 32
)

// SharedSecret returns the key of the digests, which all replicas of the agent share. Keys for
// other purposes are derived from it.
func (k Secrets) SharedSecret(ctx context.Context) ([]byte, error) {
	key, err := k.digests.read(ctx)
	return key, kubeproblem.From(err, "reading the key that the agent's replicas share")
}

// describe returns what may be revealed about a Secret.
func (k Secrets) describe(ctx context.Context, s *corev1.Secret) (runnerapi.Secret, error) {
	key, err := k.digests.read(ctx)
	if err != nil {
		return runnerapi.Secret{}, kubeproblem.From(err, "reading the key of the digests")
	}
	out := runnerapi.Secret{
		Namespace: s.Namespace, Name: s.Name, Type: string(s.Type),
		Keys: []runnerapi.SecretKey{}, Digest: digest(key, string(s.Type), s.Data), CreatedAt: s.CreationTimestamp.Time,
	}
	for _, name := range slices.Sorted(maps.Keys(s.Data)) {
		out.Keys = append(out.Keys, runnerapi.SecretKey{Key: name, Size: len(s.Data[name])})
	}
	return out, nil
}

// digest covers the type, the keys and the values, each with its length, so
// that no two contents run together into the same bytes.
func digest(key []byte, kind string, data map[string][]byte) string {
	mac := hmac.New(sha256.New, key)
	frame(mac, []byte(kind))
	for _, name := range slices.Sorted(maps.Keys(data)) {
		frame(mac, []byte(name))
		frame(mac, data[name])
	}
	return "hmac-sha256:" + hex.EncodeToString(mac.Sum(nil))
}

func frame(h hash.Hash, b []byte) {
	var size [8]byte
	binary.BigEndian.PutUint64(size[:], uint64(len(b)))
	h.Write(size[:])
	h.Write(b)
}

// digestKey is the key of the digests. It is read once.
type digestKey struct {
	client    client.Client
	namespace string

	mu  sync.Mutex
	key []byte
}

// read reads the key, or makes it the first time.
func (d *digestKey) read(ctx context.Context) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.key != nil {
		return d.key, nil
	}
	s := &corev1.Secret{}
	err := d.client.Get(ctx, client.ObjectKey{Namespace: d.namespace, Name: digestSecret}, s)
	if apierrors.IsNotFound(err) {
		s, err = d.create(ctx)
	}
	if err != nil {
		return nil, err
	}
	if len(s.Data[digestField]) < digestBytes {
		return nil, fmt.Errorf("secret %s/%s holds no key: delete it, and the agent makes a new one", d.namespace, digestSecret)
	}
	d.key = s.Data[digestField]
	return d.key, nil
}

func (d *digestKey) create(ctx context.Context) (*corev1.Secret, error) {
	key := make([]byte, digestBytes)
	_, _ = rand.Read(key) // it never fails
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: d.namespace, Name: digestSecret, Labels: objectmeta.Labels()},
		Data:       map[string][]byte{digestField: key},
	}
	err := d.client.Create(ctx, s, client.FieldOwner(objectmeta.FieldManager))
	if apierrors.IsAlreadyExists(err) { // another replica was first
		err = d.client.Get(ctx, client.ObjectKeyFromObject(s), s)
	}
	return s, err
}
