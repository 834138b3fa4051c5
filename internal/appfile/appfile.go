// Package appfile reads an App from a file, for the command line and for sources alike. Package
// runnerapi validates the spec.
package appfile

import (
	"errors"
	"fmt"

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
	document, err := limits.Document(text)
	if err != nil || document == nil {
		return File{}, err
	}
	var root map[string]any
	doc, err := document.JSON()
	if err != nil {
		return File{}, err
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(doc, &root); err != nil {
		return File{}, errors.New("is not an object")
	}
	given, is := textOf(root, "apiVersion"), textOf(root, "kind")
	if given == "" && is == "" {
		file := File{}
		err := document.Into(&file.Spec)
		return file, explained(err, root)
	}
	if given != apiVersion || is != kind {
		return File{}, fmt.Errorf("is a %.60q of %.60q, not an App of pipeops.io/v1alpha1", is, given)
	}
	var r resource
	err = document.Into(&r)
	return File{Namespace: r.Metadata.Namespace, Name: r.Metadata.Name, Spec: r.Spec}, explained(err, root)
}

// Write returns the text of an App, in the form that kubectl takes.
func Write(f File) ([]byte, error) {
	r := struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Metadata   map[string]string `json:"metadata"`
		Spec       runnerapi.AppSpec `json:"spec"`
	}{apiVersion, kind, map[string]string{"name": f.Name, "namespace": f.Namespace}, f.Spec}
	if f.Namespace == "" {
		delete(r.Metadata, "namespace")
	}
	return decode.ToYAML(r)
}

// The form that kubectl takes.
const apiVersion, kind = "pipeops.io/v1alpha1", "App"

// Decode reads a bare spec of another kind, with the same care.
func Decode(text []byte, spec any) error { return limits.YAML(text, spec) }

// WriteSpec returns the text of a bare spec.
func WriteSpec(spec runnerapi.AppSpec) ([]byte, error) { return decode.ToYAML(spec) }
