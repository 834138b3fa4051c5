// Package contract holds answers of an HTTP API against its OpenAPI document. Its tests send the
// Runner API requests that are generated from the document, and call it from another language.
package contract

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Document is an OpenAPI 3.1 document, whose schemas are JSON Schema 2020-12.
type Document struct {
	Operations []*Operation
	root       any
	compiler   *jsonschema.Compiler
	schemas    map[string]*jsonschema.Schema
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

// Response is one that a call may answer.
type Response struct {
	Headers map[string]any
	Content map[string]any
}

const resource = "openapi.json"

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
			if op.ID == "kubernetes-api" { // OpenAPI has no parameter of several parts
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

// Resolved is a schema, or what it refers to.
func (d *Document) Resolved(schema map[string]any) map[string]any {
	for {
		ref, ok := schema["$ref"].(string)
		if !ok {
			return schema
		}
		schema, _ = at(d.root, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...).(map[string]any)
	}
}

// Find answers the call of a method and a path. HEAD is its GET's.
func (d *Document) Find(method, path string) *Operation {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	for _, op := range d.Operations {
		if op.Method == method && op.pattern.MatchString(path) {
			return op
		}
	}
	return nil
}

// Answer is what a server answered to a request.
type Answer struct {
	Method string
	Path   string // escaped, without the query
	Status int
	Header http.Header
	Body   []byte
	DryRun bool
	Cut    bool // the body is the beginning of a stream
}

// zeroTime is how Go writes a time that is none.
const zeroTime = `"0001-01-01T00:00:00Z"`

// Check reports what of an answer is not in the document.
func (d *Document) Check(a Answer) error {
	op := d.Find(a.Method, a.Path)
	if op == nil {
		return d.checkNoCall(a)
	}
	answer, ok := op.Responses[fmt.Sprint(a.Status)]
	if !ok {
		if _, ok = op.Responses["default"]; ok {
			return nil
		}
		return fmt.Errorf("the document has no status %d of %s %s", a.Status, op.Method, op.Path)
	}
	if a.Header.Get("Request-Id") == "" {
		return errors.New("the answer has no Request-Id")
	}
	if err := checkOperation(op, a); err != nil {
		return err
	}
	if bytes.Contains(a.Body, []byte(zeroTime)) {
		return errors.New("the answer has a time that is none")
	}
	return d.checkBody(op, answer, a)
}

// checkNoCall looks at the answer to what is no call.
func (d *Document) checkNoCall(a Answer) error {
	if a.Status != http.StatusNotFound && a.Status != http.StatusMethodNotAllowed && a.Status != http.StatusBadRequest {
		return fmt.Errorf("%s %s is no call, and was answered with %d", a.Method, a.Path, a.Status)
	}
	if a.Status == http.StatusMethodNotAllowed && a.Header.Get("Allow") == "" {
		return errors.New("a 405 without Allow")
	}
	if a.Method == http.MethodHead {
		return nil
	}
	return d.validate("/components/schemas/Error", a.Body)
}

// checkOperation wants the headers of a write that was carried out.
func checkOperation(op *Operation, a Answer) error {
	if op.Method == http.MethodGet || a.Status >= 300 || a.DryRun {
		return nil
	}
	id := a.Header.Get("Operation-Id")
	if id == "" || a.Header.Get("Location") != "/v1/operations/"+id {
		return fmt.Errorf("a write answered with Operation-Id %q and Location %q", id, a.Header.Get("Location"))
	}
	return nil
}

func (d *Document) checkBody(op *Operation, answer Response, a Answer) error {
	if len(answer.Content) == 0 {
		if len(a.Body) > 0 && a.Status != http.StatusSwitchingProtocols {
			return fmt.Errorf("the document has no body of status %d", a.Status)
		}
		return nil
	}
	media, _, err := mime.ParseMediaType(a.Header.Get("Content-Type"))
	if err != nil {
		return fmt.Errorf("content type %q: %w", a.Header.Get("Content-Type"), err)
	}
	if _, ok := answer.Content[media]; !ok {
		return fmt.Errorf("the document has no content type %s of status %d", media, a.Status)
	}
	if a.Method == http.MethodHead {
		if len(a.Body) > 0 {
			return errors.New("HEAD was answered with a body")
		}
		return nil
	}
	schema := strings.Join([]string{"", "paths", escaped(op.Path), strings.ToLower(op.Method), "responses", fmt.Sprint(a.Status), "content", escaped(media), "schema"}, "/")
	switch media {
	case "text/plain":
		return nil
	case "text/event-stream":
		return d.checkEvents(schema, a.Body)
	case "application/x-ndjson":
		return d.checkLines(schema, a)
	}
	return d.validate(schema, a.Body)
}

// checkEvents looks at the events that are whole.
func (d *Document) checkEvents(schema string, body []byte) error {
	blocks := strings.Split(string(body), "\n\n")
	for _, block := range blocks[:len(blocks)-1] {
		of := schema
		if strings.Contains(block, "event: error\n") {
			of = "/components/schemas/Error"
		}
		for line := range strings.SplitSeq(block, "\n") {
			if data, ok := strings.CutPrefix(line, "data: "); ok {
				if err := d.validate(of, []byte(data)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (d *Document) checkLines(schema string, a Answer) error {
	lines := strings.Split(string(a.Body), "\n")
	for _, line := range lines[:len(lines)-1] {
		if err := d.validate(schema, []byte(line)); err != nil {
			return err
		}
	}
	return nil
}

// validate holds JSON against the schema at a JSON pointer of the document.
func (d *Document) validate(pointer string, body []byte) error {
	schema := d.schemas[pointer]
	if schema == nil {
		var err error
		if schema, err = d.compiler.Compile(resource + "#" + pointer); err != nil {
			return err
		}
		d.schemas[pointer] = schema
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("the body is no JSON: %w", err)
	}
	if err := schema.Validate(value); err != nil {
		return fmt.Errorf("the body is not what the document says: %w", err)
	}
	return nil
}

// escaped is a part of a JSON pointer in a URL's fragment.
func escaped(part string) string {
	return strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D", "+", "%2B").Replace(part)
}
