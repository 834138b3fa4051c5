package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// maxManifest is what the API takes.
const maxManifest = runnerapi.MaxAppBody

// manifest is an App as a file gives it.
type manifest struct {
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

func readManifest(path string, stdin io.Reader) (manifest, error) {
	text, err := readLimited(path, stdin, maxManifest)
	if err != nil {
		return manifest{}, usageError{err}
	}
	m, err := parseManifest(text)
	if err != nil {
		return manifest{}, usageError{fmt.Errorf("%s: %w", path, err)}
	}
	return m, nil
}

// readLimited reads a file, or standard input for "-".
func readLimited(path string, stdin io.Reader, limit int) ([]byte, error) {
	r := stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }()
		r = f
	}
	text, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", path, err)
	case len(text) > limit:
		return nil, fmt.Errorf("%s: has more than %d bytes", path, limit)
	}
	return text, nil
}

// parseManifest reads a spec or a manifest, in YAML or JSON. It refuses what it
// does not know: a field with a typo would otherwise be left out in silence.
func parseManifest(text []byte) (manifest, error) {
	if several(text) {
		return manifest{}, errors.New("holds more than one document; deploy takes one App")
	}
	doc, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return manifest{}, err
	}
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(doc, &head); err != nil {
		return manifest{}, errors.New("is not an object")
	}
	if head.APIVersion == "" && head.Kind == "" {
		var spec runnerapi.AppSpec
		return manifest{Spec: spec}.of(kjsonStrict(doc, &spec), &spec)
	}
	if head.APIVersion != "pipeops.io/v1alpha1" || head.Kind != "App" {
		return manifest{}, fmt.Errorf("is a %q of %q; deploy takes an App of pipeops.io/v1alpha1", head.Kind, head.APIVersion)
	}
	var r resource
	err = kjsonStrict(doc, &r)
	return manifest{Namespace: r.Metadata.Namespace, Name: r.Metadata.Name}.of(err, &r.Spec)
}

func (m manifest) of(err error, spec *runnerapi.AppSpec) (manifest, error) {
	m.Spec = *spec
	return m, err
}

func kjsonStrict(doc []byte, into any) error {
	strict, err := kjson.UnmarshalStrict(doc, into)
	return errors.Join(append(strict, wrongType(err))...)
}

// wrongType says which field is of another type than it has to be, without Go's names.
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

// several says whether the YAML has more than one document with something in it.
func several(text []byte) bool {
	n := 0
	for doc := range bytes.SplitSeq(append([]byte("\n"), text...), []byte("\n---")) {
		for line := range bytes.Lines(doc) {
			if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
				n++
				break
			}
		}
	}
	return n > 1
}
