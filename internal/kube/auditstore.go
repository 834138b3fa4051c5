package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/audit"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
)

const auditPrefix = "audit-"

// AuditStore keeps batches of the audit log as ControllerRevisions in the agent's namespace, as the
// Journal does with its records. Creating one is the claim, which one replica wins, and the API
// server does not allow changes of its data.
type AuditStore struct{ k *Client }

var _ audit.Store = AuditStore{}

// AuditStore returns the audit store in the agent's namespace.
func (k *Client) AuditStore() AuditStore { return AuditStore{k} }

func auditLabels() map[string]string {
	return map[string]string{objectmeta.ManagedBy: objectmeta.ManagedByAgent, objectmeta.Operation: "audit"}
}

func (s AuditStore) meta(first int64) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: s.k.opts.Namespace, Name: fmt.Sprintf("%s%012d", auditPrefix, first), Labels: auditLabels()}
}

// auditData contains the text as base64, because its exact bytes are hashed.
type auditData struct {
	Text []byte `json:"text"`
}

// Put implements audit.Store.
func (s AuditStore) Put(ctx context.Context, first int64, text []byte) (bool, error) {
	raw, err := json.Marshal(auditData{text})
	if err != nil {
		return false, err
	}
	r := &appsv1.ControllerRevision{ObjectMeta: s.meta(first), Revision: first, Data: runtime.RawExtension{Raw: raw}}
	err = s.k.client.Create(ctx, r, client.FieldOwner(objectmeta.FieldManager))
	if apierrors.IsAlreadyExists(err) {
		return false, nil
	}
	return err == nil, err
}

// Get implements audit.Store.
func (s AuditStore) Get(ctx context.Context, first int64) ([]byte, error) {
	r := &appsv1.ControllerRevision{ObjectMeta: s.meta(first)}
	if err := s.k.client.Get(ctx, client.ObjectKeyFromObject(r), r); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if len(r.Data.Raw) > 2*audit.MaxText {
		return []byte("too large"), nil // which is not a batch
	}
	var data auditData
	if err := json.Unmarshal(r.Data.Raw, &data); err != nil {
		return r.Data.Raw, nil //nolint:nilerr // it is not a batch, which its reader reports
	}
	return data.Text, nil
}

// List implements audit.Store.
func (s AuditStore) List(ctx context.Context) ([]int64, error) {
	var all []int64
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("ControllerRevisionList"))
	err := s.k.pages(ctx, list, func(client.ObjectList) error {
		for _, r := range list.Items {
			number, isOurs := strings.CutPrefix(r.Name, auditPrefix)
			if n, err := strconv.ParseInt(number, 10, 64); isOurs && err == nil {
				all = append(all, n)
			}
		}
		return nil
	}, client.InNamespace(s.k.opts.Namespace), client.MatchingLabels(auditLabels()))
	slices.Sort(all)
	return all, err
}

// Delete implements audit.Store.
func (s AuditStore) Delete(ctx context.Context, first int64) error {
	return client.IgnoreNotFound(s.k.client.Delete(ctx, &appsv1.ControllerRevision{ObjectMeta: s.meta(first)}))
}

// Most implements audit.Store.
func (s AuditStore) Most() int { return audit.Keep }

// String implements audit.Store.
func (s AuditStore) String() string { return "controller revisions of namespace " + s.k.opts.Namespace }
