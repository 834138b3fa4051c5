package app

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/appcache"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
)

// blockless starts an informer without waiting for it: the manager does.
var blockless = cache.BlockUntilSynced(false)

// MissingCRDError means that the cluster lacks the App resource, or has an older version than this
// agent writes.
type MissingCRDError struct{ Reason string }

func (e *MissingCRDError) Error() string {
	return fmt.Sprintf("%s: apply the agent's manifest (kubectl apply -f deployments/crds/pipeops.io_apps.yaml) and start the agent again", e.Reason)
}

// checkCRD looks for the App resource. It retries while the API server cannot be reached, because
// that is not an answer.
func (e *Engine) checkCRD(ctx context.Context) error {
	pause := retry.Backoff(500*time.Millisecond, 15*time.Second)
	for {
		missing := &MissingCRDError{}
		err := CheckCRD(ctx, e.store.Live)
		if err == nil || errors.As(err, &missing) || apierrors.IsForbidden(err) {
			return err
		}
		e.log.Warn().Err(err).Msg("the Kubernetes API does not respond; retrying")
		if !retry.Wait(ctx, pause.NextBackOff()) {
			return ctx.Err()
		}
	}
}

// CheckCRD checks once whether the cluster has the App resource that this agent writes. It returns
// a *MissingCRDError if it has not.
func CheckCRD(ctx context.Context, cluster client.Reader) error {
	def := &metav1.PartialObjectMetadata{}
	def.SetGroupVersionKind(appcache.CRDKind)
	err := cluster.Get(ctx, client.ObjectKey{Name: v1alpha1.CRDName}, def)
	switch {
	case apierrors.IsNotFound(err):
		return &MissingCRDError{"the cluster has no resource " + v1alpha1.CRDName}
	case apierrors.IsForbidden(err):
		return fmt.Errorf("look for resource %s: %w: apply the agent's manifest, which grants it", v1alpha1.CRDName, err)
	case err != nil:
		return err
	}
	return checkVersion(def.Annotations[v1alpha1.SchemaVersionAnnotation])
}

func checkVersion(have string) error {
	version, err := strconv.Atoi(have)
	if err != nil {
		return &MissingCRDError{"resource " + v1alpha1.CRDName + " of the cluster does not say its version (annotation " + v1alpha1.SchemaVersionAnnotation + ")"}
	}
	if version < v1alpha1.SchemaVersion {
		return &MissingCRDError{fmt.Sprintf("resource %s of the cluster has version %d, this agent needs %d", v1alpha1.CRDName, version, v1alpha1.SchemaVersion)}
	}
	return nil
}
