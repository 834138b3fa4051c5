package workloadhealth

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pipeops/pipeops-vm-agent/internal/app/diagnose"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// The groups of External Secrets and of Vault's operator, which make Secrets of objects.
const (
	externalSecrets = "external-secrets.io"
	vaultSecrets    = "secrets.hashicorp.com"
)

// settleFor is how long an object may be not ready before it has failed. The first try of an
// ExternalSecret fails when its store comes with it.
const settleFor = 30 * time.Second

// sourced is what the operators write into the status of their objects.
type sourced struct {
	Spec struct {
		HMACSecretData *bool `json:"hmacSecretData"`
	} `json:"spec"`
	Status struct {
		Conditions            []status.BasicCondition `json:"conditions"`
		SyncedResourceVersion string                  `json:"syncedResourceVersion"`
		SecretMAC             string                  `json:"secretMAC"`
	} `json:"status"`
}

// ofSecretSource returns how an object is from which an operator makes a Secret, or a store that
// such an object names. The general rule calls an object ready that its operator has not seen, and
// an error that lasts no failure.
func (c *Checker) ofSecretSource(ctx context.Context, u *unstructured.Unstructured) (Report, bool) {
	group := u.GroupVersionKind().Group
	if group != externalSecrets && group != vaultSecrets {
		return Report{}, false
	}
	var o sourced
	if runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &o) != nil {
		return Report{State: runnerapi.ObjectUnknown, Message: "its status cannot be understood"}, true
	}
	at := slices.IndexFunc(o.Status.Conditions, func(c status.BasicCondition) bool { return c.Type == "Ready" })
	switch {
	case at >= 0:
		return c.byReady(ctx, u, &o, o.Status.Conditions[at]), true
	case group == externalSecrets:
		return Report{State: runnerapi.ObjectInProgress, Message: "waits for External Secrets to look at it"}, true
	case u.GetKind() == "VaultStaticSecret" && (o.Spec.HMACSecretData == nil || *o.Spec.HMACSecretData):
		if o.Status.SecretMAC != "" {
			return Report{State: runnerapi.ObjectReady}, true
		}
		return Report{State: runnerapi.ObjectInProgress, Message: "waits for Vault's operator to read the secret" + c.reason(ctx, u)}, true
	}
	return Report{}, false
}

func (c *Checker) byReady(ctx context.Context, u *unstructured.Unstructured, o *sourced, ready status.BasicCondition) Report {
	if ready.Status != corev1.ConditionTrue {
		r := Report{State: runnerapi.ObjectInProgress, Message: ready.Message + c.reason(ctx, u)}
		if c.now().Sub(newest(u)) >= settleFor {
			r.State = runnerapi.ObjectFailed
		}
		return r
	}
	synced := o.Status.SyncedResourceVersion
	if synced != "" && !strings.HasPrefix(synced, fmt.Sprintf("%d-", u.GetGeneration())) {
		return Report{State: runnerapi.ObjectInProgress, Message: "waits for External Secrets to read its newest spec"}
	}
	return Report{State: runnerapi.ObjectReady}
}

// reason returns the operator's newest warning about an object, which says more than a condition,
// as the rest of a message.
func (c *Checker) reason(ctx context.Context, u *unstructured.Unstructured) string {
	api, err := c.client()
	if err != nil {
		return ""
	}
	g := Gatherer{Namespace: u.GetNamespace(), Live: api}
	maker, err := g.warning(ctx, u.GetName(), func(of corev1.ObjectReference) bool { return of.UID == u.GetUID() })
	if err != nil || maker == (diagnose.Maker{}) {
		return ""
	}
	return ": " + maker.Message
}

// newest returns when the spec of an object was written last.
func newest(u *unstructured.Unstructured) time.Time {
	at := u.GetCreationTimestamp().Time
	for _, by := range u.GetManagedFields() {
		if by.Subresource == "" && by.Time != nil && by.Time.After(at) {
			at = by.Time.Time
		}
	}
	return at
}
