// Package appfile reads an App from a file, for the command line and for sources alike. Package
// runnerapi validates the spec.
package appfile

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	kjson "sigs.k8s.io/json"

	"github.com/pipeops/pipeops-vm-agent/internal/decode"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// File is the content of an App's file. A bare spec contains no name.
type File struct {
	Namespace, Name string
	Spec            runnerapi.AppSpec
}

// resource is the form that kubectl takes.
type resource struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name        string            `json:"name"`
		Namespace   string            `json:"namespace"`
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec runnerapi.AppSpec `json:"spec"`
}

var limits = decode.LimitsFor(runnerapi.MaxAppBody)

// Read reads a spec or an App, in YAML or JSON. It refuses unknown fields: a misspelled field would
// otherwise be ignored silently.
func Read(text []byte) (File, error) {
	doc, err := limits.FromYAML(text)
	if err != nil {
		return File{}, err
	}
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(doc, &head); err != nil {
		return File{}, errors.New("is not an object")
	}
	if head.APIVersion == "" && head.Kind == "" {
		file := File{}
		err := strict(doc, &file.Spec)
		return file, err
	}
	if head.APIVersion != "pipeops.io/v1alpha1" || head.Kind != "App" {
		return File{}, fmt.Errorf("is a %.60q of %.60q, not an App of pipeops.io/v1alpha1", head.Kind, head.APIVersion)
	}
	var r resource
	err = strict(doc, &r)
	return File{Namespace: r.Metadata.Namespace, Name: r.Metadata.Name, Spec: r.Spec}, err
}

// Decode reads a bare spec of another kind, with the same care.
func Decode(text []byte, spec any) error {
	doc, err := limits.FromYAML(text)
	if err != nil {
		return err
	}
	return strict(doc, spec)
}

func strict(doc []byte, into any) error {
	unknown, err := kjson.UnmarshalStrict(doc, into)
	return errors.Join(append(unknown, wrongType(err))...)
}

// wrongType returns which field is of another type than it has to be, without Go's names.
func wrongType(err error) error {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return err
	}
	kind := "an object"
	switch wrong.Type.Kind() {
	case reflect.String:
		kind = "a text; put it in quotes"
	case reflect.Bool:
		kind = "true or false"
	case reflect.Slice, reflect.Array:
		kind = "a list"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		kind = "a whole number"
	}
	return fmt.Errorf("%s: is a %s, but has to be %s", cmp.Or(wrong.Field, "the document"), wrong.Value, kind)
}
