package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/pipeops/pipeops-vm-agent/internal/app/apply"
	"github.com/pipeops/pipeops-vm-agent/internal/app/diagnose"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/app/workload"
	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// refuseSpec finds what the API would have refused: an App can come from
// kubectl too.
func (c *Controller) refuseSpec(ctx context.Context, a *v1alpha1.App) (*runnerapi.Diagnosis, error) {
	ok, err := c.store.Manages(ctx, a.Namespace)
	if err != nil {
		return nil, fmt.Errorf("read namespace %s: %w", a.Namespace, err)
	}
	if !ok {
		p := runnerapi.NotManaged(a.Namespace)
		return &runnerapi.Diagnosis{
			Cause: runnerapi.CauseAdmissionRefused, Object: "namespace/" + a.Namespace, Message: p.Detail, Fix: p.Fix,
		}, nil
	}
	errs := append(a.Spec.ValidateName(a.Name), a.Spec.Validate()...)
	if len(errs) > 0 {
		var all, fields []string
		for _, e := range errs {
			field := "spec." + e.Field
			if e.Field == "path.name" {
				field = "metadata.name"
			}
			all, fields = append(all, strings.TrimPrefix(field, "spec.")+": "+e.Message), append(fields, field)
		}
		return &runnerapi.Diagnosis{
			Cause: runnerapi.CauseInvalidSpec, Object: "app/" + a.Name,
			Message: v1alpha1.Bounded(strings.Join(all, "; ")), Fix: v1alpha1.Bounded("correct " + strings.Join(fields, ", ")),
		}, nil
	}
	if err := workload.CheckPatches(a); err != nil {
		return invalidPatch(a, err), nil
	}
	return nil, nil
}

func invalidPatch(a *v1alpha1.App, err error) *runnerapi.Diagnosis {
	d := &runnerapi.Diagnosis{Cause: runnerapi.CauseInvalidSpec, Object: "app/" + a.Name, Message: v1alpha1.Bounded(err.Error()), Fix: "correct spec.patches"}
	if p := (&problem.Error{}); errors.As(err, &p) {
		d.Message, d.Fix = v1alpha1.Bounded(p.Field+": "+p.Detail), v1alpha1.Bounded("spec."+p.Field+": "+p.Fix)
	}
	return d
}

// refusalOf returns the diagnosis of an error that a retry does not cure; any other comes
// back.
func refusalOf(err error) (*runnerapi.Diagnosis, error) {
	if foreign, ok := errors.AsType[*apply.ForeignError](err); ok {
		return &runnerapi.Diagnosis{
			Cause: runnerapi.CauseConflict, Object: workload.KindPath(foreign.Kind, foreign.Name),
			Message: foreign.Error(), Fix: foreign.Fix(),
		}, nil
	}
	switch {
	case diagnose.FromPolicy(err.Error()):
		d := diagnose.Refused(err.Error(), objectOf(err))
		d.Message = strings.Replace(d.Message, "the cluster refuses the pods", "the cluster refuses what the App needs", 1)
		return d, nil
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return refused(err, runnerapi.CauseInvalidSpec), nil
	case apierrors.IsForbidden(err):
		d := refused(err, runnerapi.CauseAdmissionRefused)
		if quota := diagnose.Refused(err.Error(), ""); quota.Cause == runnerapi.CauseQuotaExceeded {
			d.Cause, d.Fix = quota.Cause, quota.Fix
		}
		return d, nil
	}
	if unexpected(err) {
		return refused(err, runnerapi.CauseUnknown), nil
	}
	return nil, err
}

// unexpected reports whether the API server refused for a reason that is neither in the spec nor
// temporary.
func unexpected(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && !apierrors.IsConflict(err) && !apierrors.IsTooManyRequests(err) &&
		!apierrors.IsServerTimeout(err) && !apierrors.IsTimeout(err) && !apierrors.IsServiceUnavailable(err) && !apierrors.IsAlreadyExists(err)
}

// objectOf returns what a refusal is about, as kind/name.
func objectOf(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Name != "" {
		return workload.KindPath(status.Status().Details.Kind, status.Status().Details.Name)
	}
	return ""
}

func refused(err error, cause runnerapi.Cause) *runnerapi.Diagnosis {
	d := &runnerapi.Diagnosis{
		Cause: cause, Object: objectOf(err), Message: err.Error(), Fix: "change in the App's spec what the message names (kubectl explain app.spec)",
	}
	if p, ok := errors.AsType[*problem.Error](kubeproblem.From(err, "applying the App")); ok {
		d.Message, d.Fix = p.Detail, p.Fix
		if p.Field != "" {
			d.Message = p.Field + ": " + p.Detail
			d.Fix = "correct in the App's spec what becomes " + p.Field + " of the object (kubectl explain app.spec)"
		}
	}
	return d
}
