package app

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
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
	backoff := wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 0.3, Steps: 8, Cap: 15 * time.Second}
	return backoff.DelayFunc().Until(ctx, true, false, func(ctx context.Context) (bool, error) {
		missing := &MissingCRDError{}
		err := CheckCRD(ctx, e.live)
		switch {
		case err == nil:
			return true, nil
		case errors.As(err, &missing), apierrors.IsForbidden(err):
			return false, err
		}
		e.log.Warn().Err(err).Msg("the Kubernetes API does not answer; trying again")
		return false, nil
	})
}

// CheckCRD checks once whether the cluster has the App resource that this agent writes. It returns
// a *MissingCRDError if it has not.
func CheckCRD(ctx context.Context, cluster client.Reader) error {
	def := &metav1.PartialObjectMetadata{}
	def.SetGroupVersionKind(crdKind)
	err := cluster.Get(ctx, client.ObjectKey{Name: CRDName}, def)
	switch {
	case apierrors.IsNotFound(err):
		return &MissingCRDError{"the cluster has no resource " + CRDName}
	case apierrors.IsForbidden(err):
		return fmt.Errorf("look for resource %s: %w: apply the agent's manifest, which grants it", CRDName, err)
	case err != nil:
		return err
	}
	return checkVersion(def.Annotations[SchemaVersionAnnotation])
}

func checkVersion(have string) error {
	version, err := strconv.Atoi(have)
	if err != nil {
		return &MissingCRDError{"resource " + CRDName + " of the cluster does not say its version (annotation " + SchemaVersionAnnotation + ")"}
	}
	if version < SchemaVersion {
		return &MissingCRDError{fmt.Sprintf("resource %s of the cluster has version %d, this agent needs %d", CRDName, version, SchemaVersion)}
	}
	return nil
}
