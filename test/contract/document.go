// Package contract checks answers of an HTTP API against its OpenAPI document. Its tests send the
// Runner API requests that are generated from the document, and call it from another language.
package contract

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Document is an OpenAPI 3.1 document, whose schemas are JSON Schema 2020-12.
type Document struct {
	Operations []*Operation
	root       any

	mu       sync.Mutex
	compiler *jsonschema.Compiler
	schemas  map[string]*jsonschema.Schema
}

// Operation is a call of a document.
type Operation struct {
	ID          string
	Method      string
	Path        string // with {name} for parameters
	Parameters  []Parameter
	RequestBody struct {
		Content map[string]struct{ Schema, Example any }
	}
	Responses map[string]Response

	pattern *regexp.Regexp
}

// Parameter is one of a call's.
type Parameter struct {
	Name, In string
	Required bool
	Schema   map[string]any
}

// Response is a possible answer of a call.
type Response struct {
	Headers map[string]any
	Content map[string]any
}

const (
	resource = "openapi.json"
	// kubernetesAPI is the call whose answers come from the API server.
	kubernetesAPI = "kubernetes-api"
)

var parameter = regexp.MustCompile(`\\\{[^}]*\\\}`)

// Read reads a document.
func Read(raw []byte) (*Document, error) {
	var read struct {
		Paths map[string]map[string]*Operation
	}
	if err := json.Unmarshal(raw, &read); err != nil {
		return nil, err
	}
	root, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	d := &Document{root: root, compiler: jsonschema.NewCompiler(), schemas: map[string]*jsonschema.Schema{}}
	d.compiler.AssertFormat()
	if err := d.compiler.AddResource(resource, root); err != nil {
		return nil, err
	}
	for path, methods := range read.Paths {
		for method, op := range methods {
			op.Method, op.Path = strings.ToUpper(method), path
			op.ID = idOf(root, path, method)
			part := "[^/]*"
			if op.ID == kubernetesAPI { // OpenAPI has no parameter of several parts
				part = ".*"
			}
			op.pattern = regexp.MustCompile("^" + parameter.ReplaceAllString(regexp.QuoteMeta(path), part) + "$")
			d.Operations = append(d.Operations, op)
		}
	}
	slices.SortFunc(d.Operations, func(a, b *Operation) int { return strings.Compare(a.Path+a.Method, b.Path+b.Method) })
	return d, nil
}

func idOf(root any, path, method string) string {
	id, _ := at(root, "paths", path, method, "operationId").(string)
	return id
}

// at follows keys into decoded JSON.
func at(v any, keys ...string) any {
	for _, key := range keys {
		object, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = object[key]
	}
	return v
}

// Resolved returns a schema, or the one that it refers to.
func (d *Document) Resolved(schema map[string]any) map[string]any {
	for {
		ref, ok := schema["$ref"].(string)
		if !ok {
			return schema
		}
		schema, _ = at(d.root, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...).(map[string]any)
	}
}

// Find returns the call of a method and a path. HEAD is its GET's, and the Kubernetes API has all
// methods.
func (d *Document) Find(method, path string) *Operation {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	for _, op := range d.Operations {
		if (op.Method == method || op.ID == kubernetesAPI) && op.pattern.MatchString(path) {
			return op
		}
	}
	return nil
}

// validate holds JSON against the schema at a JSON pointer of the document.
func (d *Document) validate(pointer string, body []byte) error {
	schema, err := d.schema(pointer)
	if err != nil {
		return err
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("the body is not JSON: %w", err)
	}
	if err := schema.Validate(value); err != nil {
		return fmt.Errorf("the body is not what the document says: %w", err)
	}
	return nil
}

func (d *Document) schema(pointer string) (*jsonschema.Schema, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if schema := d.schemas[pointer]; schema != nil {
		return schema, nil
	}
	schema, err := d.compiler.Compile(resource + "#" + pointer)
	d.schemas[pointer] = schema
	return schema, err
}

// escaped returns a part of a JSON pointer in a URL's fragment.
func escaped(part string) string {
	return strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D", "+", "%2B").Replace(part)
}
