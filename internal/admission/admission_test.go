package admission_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/admission"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func TestNamespace_OnlyManaged(t *testing.T) {
	const notManaged = runnerapi.CodeNamespaceNotManaged
	const broken = runnerapi.Code("no word of the API")
	ours := objectmeta.Labels()
	for name, test := range map[string]struct {
		namespace string
		labels    map[string]string
		only      []string
		failure   error
		want      runnerapi.Code
	}{
		"the agent's":           {namespace: "shop", labels: ours},
		"one of its list":       {namespace: "shop", labels: ours, only: []string{"shop"}},
		"not on its list":       {namespace: "shop", labels: ours, only: []string{"blog"}, want: notManaged},
		"without its mark":      {namespace: "shop", want: notManaged},
		"with another's mark":   {namespace: "shop", labels: map[string]string{objectmeta.ManagedBy: "Helm"}, want: notManaged},
		"Kubernetes' own":       {namespace: "kube-system", labels: ours, want: notManaged},
		"everybody's":           {namespace: "default", labels: ours, want: notManaged},
		"where agents run":      {namespace: objectmeta.AgentNamespace, labels: ours, want: notManaged},
		"where this agent runs": {namespace: "our-agent", labels: ours, want: notManaged},
		"one that is not there": {namespace: "shop", failure: apierrors.NewNotFound(admission.Resource.GroupResource(), "shop"), want: notManaged},
		"one that is forbidden": {namespace: "shop", labels: ours, failure: apierrors.NewForbidden(admission.Resource.GroupResource(), "shop", nil), want: problem.Forbidden},
		"one that is not read":  {namespace: "shop", labels: ours, failure: errors.New("broken"), want: broken},
	} {
		t.Run(name, func(t *testing.T) {
			read := func(context.Context, string) (*metav1.PartialObjectMetadata, error) {
				return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: test.namespace, Labels: test.labels}}, test.failure
			}
			_, err := admission.Namespace(t.Context(), objectmeta.Scope{Agent: "our-agent", Only: test.only}, test.namespace, read)
			if test.want == "" {
				assert.NoError(t, err)
				return
			}
			known := &runnerapi.Error{}
			if test.want == broken {
				assert.ErrorIs(t, err, test.failure)
			} else if assert.ErrorAs(t, err, &known) {
				assert.Equal(t, test.want, known.Code)
			}
		})
	}
}

func TestNamespace_FixWithoutHandover(t *testing.T) {
	for namespace, fix := range map[string]string{
		"shop":        "namespace create AGENT shop ",
		"default":     "namespace create AGENT NAME ",
		"kube-system": "namespace create AGENT NAME ",
	} {
		assert.Contains(t, runnerapi.NotManaged(namespace).Fix, fix)
	}
}
