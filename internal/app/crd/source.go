package crd

import (
	"reflect"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// SourceYAML returns the CustomResourceDefinition of Git sources as a file.
func SourceYAML() ([]byte, error) {
	spec, err := structural(reflect.TypeFor[runnerapi.SourceSpec]())
	if err != nil {
		return nil, err
	}
	status, err := structural(reflect.TypeFor[runnerapi.SourceStatus]())
	if err != nil {
		return nil, err
	}
	relax(&status)
	spec.Description, status.Description = "What is wanted.", "What is there. Written by the agent."
	bound(spec.Properties["chart"].Properties["valuesFiles"].Items.Schema, 1024, "")
	return marshal(&apiextensions.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: apiextensions.SchemeGroupVersion.String(), Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: "sources." + v1alpha1.GroupVersion.Group, Labels: objectmeta.Labels()},
		Spec: apiextensions.CustomResourceDefinitionSpec{
			Group: v1alpha1.GroupVersion.Group,
			Names: apiextensions.CustomResourceDefinitionNames{Kind: "Source", ListKind: "SourceList", Plural: "sources", Singular: "source"},
			Scope: apiextensions.NamespaceScoped,
			Versions: []apiextensions.CustomResourceDefinitionVersion{{
				Name: v1alpha1.GroupVersion.Version, Served: true, Storage: true,
				Schema: &apiextensions.CustomResourceValidation{OpenAPIV3Schema: &apiextensions.JSONSchemaProps{
					Type: "object", Required: []string{"spec"},
					Description: "Source is a Git repository that the PipeOps agent follows.",
					Properties: map[string]apiextensions.JSONSchemaProps{
						"apiVersion": {Type: "string"}, "kind": {Type: "string"}, "metadata": {Type: "object"},
						"spec": spec, "status": status,
					},
				}},
				Subresources: &apiextensions.CustomResourceSubresources{Status: &apiextensions.CustomResourceSubresourceStatus{}},
				AdditionalPrinterColumns: []apiextensions.CustomResourceColumnDefinition{
					{Name: "Type", Type: "string", JSONPath: ".spec.type"},
					{Name: "Phase", Type: "string", JSONPath: ".status.phase"},
					{Name: "Commit", Type: "string", JSONPath: ".status.commit"},
					{Name: "Error", Type: "string", JSONPath: ".status.error.code"},
					{Name: "URL", Type: "string", JSONPath: ".spec.url", Priority: 1},
					{Name: "Message", Type: "string", JSONPath: `.status.conditions[?(@.type=="Ready")].message`, Priority: 1},
					{Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp"},
				},
			}},
		},
	})
}
