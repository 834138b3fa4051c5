package kubeproblem_test

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

var (
	secrets = schema.GroupResource{Resource: "secrets"}
	apps    = schema.GroupKind{Group: "pipeops.io", Kind: "App"}
)

func TestFrom(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		code   problem.Code
		detail string
		fix    string
		field  string
	}{
		"missing": {err: apierrors.NewNotFound(secrets, "db"), code: problem.NotFound, detail: `secrets "db" not found`, fix: "check the name"},
		"exists":  {err: apierrors.NewAlreadyExists(secrets, "db"), code: problem.Conflict, detail: "secrets/db exists already", fix: "another name"},
		"lost race": {
			err:  apierrors.NewConflict(secrets, "db", errors.New("the object has been modified")),
			code: problem.Busy, detail: "other clients changed secrets/db", fix: "again",
		},
		"field": {
			err: apierrors.NewInvalid(apps, "web", field.ErrorList{
				field.Required(field.NewPath("spec", "image"), "an image is needed"),
			}),
			code: problem.Invalid, field: "image", detail: "an image is needed", fix: "correct the field",
		},
		"immutable field": {
			err: apierrors.NewInvalid(schema.GroupKind{Group: "apps", Kind: "Deployment"}, "web", field.ErrorList{
				field.Invalid(field.NewPath("spec", "selector"), map[string]any{"matchLabels": map[string]string{"a": "b: c"}}, "field is immutable"),
			}),
			code: problem.Invalid, field: "selector", detail: "field is immutable", fix: "kubectl delete deployment.apps web",
		},
		"immutable spec": {
			err: apierrors.NewInvalid(schema.GroupKind{Kind: "PersistentVolumeClaim"}, "data", field.ErrorList{
				field.Forbidden(field.NewPath("spec"), "spec is immutable after creation except resources.requests\n  core.PersistentVolumeClaimSpec{\n  \t... // 2 identical fields"),
			}),
			code: problem.Invalid, field: "spec", detail: "Forbidden: spec is immutable after creation except resources.requests", fix: "kubectl delete persistentvolumeclaim data",
		},
		"permission": {
			err: apierrors.NewForbidden(secrets, "db", errors.New(
				`User "system:serviceaccount:pipeops:pipeops-agent" cannot get resource "secrets" in API group "" in the namespace "shop"`)),
			code: problem.Forbidden, detail: "the agent may not get secrets in namespace shop", fix: "RoleBinding",
		},
		"quota": {
			err:  apierrors.NewForbidden(secrets, "db", errors.New("exceeded quota: q, requested: secrets=1, used: secrets=5, limited: secrets=5")),
			code: problem.Forbidden, detail: "quota does not allow", fix: "ask for less",
		},
		"ending namespace": {
			err: apierrors.NewForbidden(secrets, "db", errors.New(
				"unable to create new content in namespace shop because it is being terminated")),
			code: problem.Busy, detail: "being deleted", fix: "wait until",
		},
		"webhook": {
			err:  apierrors.NewForbidden(secrets, "db", errors.New(`admission webhook "policy.example.com" denied the request: no`)),
			code: problem.Forbidden, detail: "refused", fix: "policy",
		},
		"webhook that is down": {
			err:  apierrors.NewInternalError(errors.New(`failed calling webhook "guard.example.com": failed to call webhook: connection refused`)),
			code: problem.Unavailable, detail: "webhook guard.example.com of the cluster does not answer", fix: "bring webhook guard.example.com back",
		},
		"busy":    {err: apierrors.NewTooManyRequests("slow down", 3), code: problem.TooManyRequests, fix: "later"},
		"late":    {err: context.DeadlineExceeded, code: problem.Unavailable, detail: "did not answer in time while testing"},
		"network": {err: &net.OpError{Op: "dial", Err: errors.New("refused")}, code: problem.Unavailable, detail: "while testing"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &problem.Error{}
			require.ErrorAs(t, kubeproblem.From(c.err, "testing"), &p)
			assert.Equal(t, c.code, p.Code)
			assert.Contains(t, p.Detail, c.detail)
			assert.NotRegexp(t, `matchLabels|\n|[a-z]\{`, p.Detail, "no dump")
			assert.Contains(t, p.Fix, c.fix)
			assert.Equal(t, c.field, p.Field)
		})
	}
}

func TestFrom_HidesUnexpected(t *testing.T) {
	own := problem.Errorf(problem.Conflict, "", "taken")
	assert.Equal(t, own, kubeproblem.From(own, "testing"))
	p := &problem.Error{}
	assert.False(t, errors.As(kubeproblem.From(errors.New("boom"), "testing"), &p))
	require.NoError(t, kubeproblem.From(nil, "testing"))
}

func TestMistyped(t *testing.T) {
	for text, want := range map[string]string{
		"Timeout": "",
		"failed to create typed patch object (a/b; /v1, Kind=ConfigMap): .data.a: expected string, got &value.valueUnstructured{Value:1}":                                       "data.a: expected string",
		"failed to create typed patch object (a/b; /v1, Kind=Service): errors:\n  .spec.ports: duplicate entries for key [port=80]\n  .spec.selector: expected map, got &{[a]}": "spec.ports: duplicate entries for key [port=80]; spec.selector: expected map",
	} {
		assert.Equal(t, want, kubeproblem.Mistyped(errors.New(text)))
	}
}
