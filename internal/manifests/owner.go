package manifests

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// Helm's marks on what a release has made.
const (
	helmRelease   = "meta.helm.sh/release-name"
	helmNamespace = "meta.helm.sh/release-namespace"
)

// ownedByOther refuses an object that is there and is not the set's, and names whose it is.
func ownedByOther(live *unstructured.Unstructured, set Set) error {
	if live == nil {
		return nil
	}
	if live.GetDeletionTimestamp() != nil {
		return problem.Errorf(problem.Busy, "wait until it is gone, and send this again", "it is being deleted")
	}
	if live.GetAnnotations()[objectmeta.SetOf] == set.String() {
		return nil
	}
	return problem.Errorf(problem.Conflict,
		fmt.Sprintf("use another name, or have its owner hand it over: kubectl annotate %s %s %s=%s", strings.ToLower(live.GetKind()), live.GetName(), objectmeta.SetOf, set),
		"it exists and %s", owner(live))
}

// owner returns an object's owner, by the first of the marks that it has.
func owner(live *unstructured.Unstructured) string {
	labels, notes := live.GetLabels(), live.GetAnnotations()
	switch by := labels[objectmeta.ManagedBy]; {
	case notes[objectmeta.SetOf] != "":
		return "belongs to set " + notes[objectmeta.SetOf]
	case by == objectmeta.ManagedByAgent && labels[objectmeta.App] != "":
		return "belongs to App " + labels[objectmeta.App]
	case notes[helmRelease] != "":
		return "belongs to Helm release " + notes[helmNamespace] + "/" + notes[helmRelease]
	case len(live.GetOwnerReferences()) > 0:
		o := live.GetOwnerReferences()[0]
		return "belongs to " + o.Kind + "/" + o.Name
	case by == objectmeta.ManagedByAgent:
		return "was made by another call of the agent's"
	case by != "":
		return "is managed by " + by
	}
	if names := managersOf(live); len(names) > 0 {
		return "was made by " + strings.Join(names, ", ")
	}
	return "was not made by this set"
}

func managersOf(live *unstructured.Unstructured) (names []string) {
	for _, entry := range live.GetManagedFields() {
		if entry.Subresource == "" && !slices.Contains(names, entry.Manager) {
			names = append(names, entry.Manager)
		}
	}
	return names
}

// missingRight is kubeproblem's text for a right that RBAC does not grant.
const missingRight = "the agent may not "

// fixRights is the fix for rights that an agent has only if the cluster owner grants them.
const fixRights = "have the owner of the cluster grant it, as deployments/manifest-rights.yaml does for the usual kinds (docs/deployer/manifests.md)"

// problemOf returns the API server's refusal of an object. It leaves out the text about a Secret,
// which could quote values.
func problemOf(err error, ref Ref, doing string) error {
	var status apierrors.APIStatus
	if owners := kubeproblem.FieldConflicts(err); owners != "" {
		return problem.Errorf(problem.Conflict, "leave these fields out of the manifest, or take them over: --force-conflicts (forceConflicts in the API)",
			"others have set fields of it: %s", owners)
	}
	_ = errors.As(err, &status)
	if mistyped := kubeproblem.Mistyped(err); mistyped != "" {
		err = problem.Errorf(problem.Invalid, problem.CorrectField, "%s", mistyped)
	}
	p := asProblem(kubeproblem.FromObject(err, doing))
	if p.Code == problem.Forbidden && strings.HasPrefix(p.Detail, missingRight) {
		c := *p
		c.Fix = fixRights
		return &c
	}
	if quotes := p.Code != problem.Forbidden && p.Code != problem.NotFound && p.Code != problem.Conflict; quotes && status != nil && kindOf(ref) == kindSecret {
		return problem.Errorf(p.Code, "correct the manifest; kubectl apply --dry-run=server shows more to those who may read the values",
			"the cluster refused this Secret; what it says could quote values")
	}
	return p
}

// asProblem returns err as a problem; any other error becomes one without detail.
func asProblem(err error) *problem.Error {
	if p, ok := errors.AsType[*problem.Error](err); ok {
		return p
	}
	if errors.Is(err, context.Canceled) {
		return problem.Errorf(problem.Unavailable, "apply it again", "the call was given up before")
	}
	return problem.Errorf(problem.Internal, "look at the agent's log and the cluster's API server", "the cluster answered something unexpected")
}
