package manifests

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"

	yamlnode "go.yaml.in/yaml/v3" // for its nodes, which know their lines and leave aliases as they are
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// What a stream of manifests may be.
const (
	MaxBytes     = runnerapi.MaxManifestsBody // of the stream
	MaxDocuments = 1000                       // and objects, those of Lists included
	// maxValues bounds the lines, entries and levels of the stream, and what its aliases
	// stand for: a value takes some hundred bytes while it is read.
	maxValues = 100_000
	// maxExpanded bounds the texts, in bytes, with what aliases stand for.
	maxExpanded = 2 * MaxBytes
	maxNesting  = 100 // the deepest schema of a well-known CRD has half of that
)

// Documents are what a stream holds.
type Documents struct {
	Objects []*unstructured.Unstructured
	where   map[*unstructured.Unstructured]string
}

// Where says where an object was read: "document 3, line 41".
func (d Documents) Where(u *unstructured.Unstructured) string { return d.where[u] }

// Decode reads a stream of YAML documents, or JSON, which is YAML too. Lists become
// their items; what the cluster alone sets is left out. Its errors name the document and
// the line.
func Decode(r io.Reader) ([]*unstructured.Unstructured, error) {
	docs, err := Read(r)
	return docs.Objects, err
}

// reading is held while a stream is read: each takes a multiple of its size for that time.
var reading sync.Mutex

// Read is Decode for who wants to know where objects were.
func Read(r io.Reader) (Documents, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxBytes+1))
	if err != nil {
		return Documents{}, fmt.Errorf("read the manifests: %w", err)
	}
	if len(text) > MaxBytes {
		return Documents{}, problem.Errorf(problem.TooLarge, "apply it as several sets", "the manifests have more than %d bytes", MaxBytes)
	}
	if n := values(text); n > maxValues {
		return Documents{}, problem.Errorf(problem.TooLarge, "apply it as several sets",
			"the manifests have more than %d lines, entries and levels", maxValues)
	}
	reading.Lock()
	defer reading.Unlock()
	d := &decoder{docs: Documents{where: map[*unstructured.Unstructured]string{}}}
	for _, part := range split(text) {
		if err := d.document(part); err != nil {
			return Documents{}, err
		}
	}
	return d.docs, nil
}

// values is no less than how many values a parser can make of a text: each entry of
// YAML begins a line, or comes after one of these.
func values(text []byte) int {
	n := 1
	for _, sign := range []string{"\n", "\r", ",", "[", "{", "- ", "-\t", "? ", "\u0085", "\u2028", "\u2029"} {
		n += bytes.Count(text, []byte(sign))
	}
	return n
}

// part is the text of a document.
type part struct {
	text []byte
	line int // its first, from 1
}

// split cuts a stream where a line is a document marker. In YAML no text can have such
// a line within it.
func split(text []byte) (parts []part) {
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	start, line, first := 0, 1, 1
	for at := 0; at < len(text); {
		end := len(text)
		if n := bytes.IndexByte(text[at:], '\n'); n >= 0 {
			end = at + n + 1
		}
		if at > start && marker(text[at:end]) {
			parts = append(parts, part{text[start:at], first})
			start, first = at, line
		}
		at = end
		line++
	}
	return append(parts, part{text[start:], first})
}

func marker(line []byte) bool {
	rest, ok := bytes.CutPrefix(line, []byte("---"))
	return ok && (len(rest) == 0 || bytes.IndexByte([]byte(" \t\r\n"), rest[0]) >= 0)
}

// decoder reads document after document.
type decoder struct {
	docs   Documents
	number int // of the document, from 1; those that are empty do not count
	first  int // line of its text
	budget budget
}

// fail names the document and the line, counted within the document's text.
func (d *decoder) fail(line int, format string, args ...any) error {
	at := d.at(line)
	return problem.Errorf(problem.Invalid, "correct the document", format, args...).WithField("body").WithLocation(at)
}

func (d *decoder) at(line int) string {
	return fmt.Sprintf("document %d, line %d", d.number, d.first+line-1)
}

func (d *decoder) document(p part) error {
	d.number++
	d.first = p.line
	root, err := d.parse(p.text)
	if err != nil {
		return err
	}
	if root == nil { // comments alone
		d.number--
		return nil
	}
	if d.number > MaxDocuments {
		return tooMany(d.at(root.Line))
	}
	if err := d.check(root, 0); err != nil {
		return err
	}
	if root.Kind != yamlnode.MappingNode {
		return d.fail(root.Line, "a manifest is a mapping with apiVersion, kind and metadata")
	}
	raw, err := yaml.YAMLToJSONStrict(p.text)
	if err != nil { // it quotes what it reads, which may be secret
		return d.fail(root.Line, "the document cannot be read as Kubernetes reads YAML")
	}
	object := map[string]any{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &object); err != nil {
		return d.fail(root.Line, "the document cannot be read as Kubernetes reads YAML")
	}
	return d.take(object, root)
}

func tooMany(at string) error {
	return problem.Errorf(problem.TooLarge, "apply them as several sets", "there are more than %d manifests", MaxDocuments).WithField("body").WithLocation(at)
}

var yamlLine = regexp.MustCompile(`^yaml: line (\d+): `)

// parse reads the nodes of one document; nil for none.
func (d *decoder) parse(text []byte) (root *yamlnode.Node, err error) {
	defer func() { // a parser of strangers' texts must not take the agent with it
		if recover() != nil {
			root, err = nil, d.fail(1, "the document is not YAML")
		}
	}()
	decoder := yamlnode.NewDecoder(bytes.NewReader(text))
	doc, next := yamlnode.Node{}, yamlnode.Node{}
	if err := decoder.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, d.syntax(err)
	}
	if err := decoder.Decode(&next); err == nil {
		return nil, d.fail(next.Line, "a document begins without a line ---")
	} else if !errors.Is(err, io.EOF) {
		return nil, d.syntax(err)
	}
	if doc.Kind != yamlnode.DocumentNode || len(doc.Content) != 1 {
		return nil, nil
	}
	root = doc.Content[0]
	if root.Kind == yamlnode.ScalarNode && root.Tag == "!!null" {
		return nil, nil
	}
	return root, nil
}

// syntax says what a parser says, without what it quotes.
func (d *decoder) syntax(err error) error {
	text, line := err.Error(), 1
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		_, _ = fmt.Sscan(m[1], &line)
		text = text[len(m[0]):]
	}
	text = quotedText.ReplaceAllString(strings.TrimPrefix(text, "yaml: "), "…")
	return d.fail(line, "not YAML: %.200s", text)
}

var quotedText = regexp.MustCompile("`[^`]*`|\"[^\"]*\"|'[^']{2,}'")

// budget is what is left of what a stream may be.
type budget struct{ values, bytes int }

// check walks a document with its aliases, as often as they stand for something.
func (d *decoder) check(n *yamlnode.Node, depth int) error {
	d.budget.values++
	d.budget.bytes += len(n.Value)
	switch {
	case d.budget.values > maxValues || d.budget.bytes > maxExpanded:
		return d.fail(n.Line, "aliases (*NAME) stand for more than a manifest can hold: write the values out")
	case depth > maxNesting:
		return d.fail(n.Line, "values are nested more than %d deep", maxNesting)
	case n.Kind == yamlnode.AliasNode:
		return d.check(n.Alias, depth+1)
	case n.Kind == yamlnode.MappingNode:
		return d.mapping(n, depth)
	}
	for _, child := range n.Content {
		if err := d.check(child, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func (d *decoder) mapping(n *yamlnode.Node, depth int) error {
	seen := make(map[string]int, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if key.Kind != yamlnode.ScalarNode {
			return d.fail(key.Line, "a key has to be a text")
		}
		if before, twice := seen[key.Value]; twice {
			return d.fail(key.Line, "the key %.100q is there twice, first in line %d", key.Value, d.first+before-1)
		}
		seen[key.Value] = key.Line
		d.budget.bytes += len(key.Value)
		if err := d.check(n.Content[i+1], depth+1); err != nil {
			return err
		}
	}
	return nil
}

// take adds an object, or the items of a List.
func (d *decoder) take(object map[string]any, node *yamlnode.Node) error {
	u := &unstructured.Unstructured{Object: object}
	items, isList := object["items"].([]any)
	if kind, _ := object["kind"].(string); isList && kind == "List" && object["apiVersion"] == "v1" {
		nodes := entry(node, "items")
		for i, item := range items {
			at := node
			if nodes != nil && nodes.Kind == yamlnode.SequenceNode && i < len(nodes.Content) {
				at = nodes.Content[i]
			}
			fields, ok := item.(map[string]any)
			if !ok {
				return d.fail(at.Line, "an item of a List is a manifest")
			}
			if err := d.take(fields, at); err != nil {
				return err
			}
		}
		return nil
	}
	if err := d.sound(u, node); err != nil {
		return err
	}
	if len(d.docs.Objects) == MaxDocuments {
		return tooMany(d.at(node.Line))
	}
	for _, field := range []string{"managedFields", "resourceVersion", "uid", "creationTimestamp", "generation", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds"} {
		unstructured.RemoveNestedField(object, "metadata", field)
	}
	delete(object, "status") // the cluster's to say
	d.docs.Objects = append(d.docs.Objects, u)
	d.docs.where[u] = d.at(node.Line)
	return nil
}

// entry is the value of a key, or nil.
func entry(n *yamlnode.Node, key string) *yamlnode.Node {
	for n != nil && n.Kind == yamlnode.AliasNode {
		n = n.Alias
	}
	if n == nil || n.Kind != yamlnode.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// line is where a key's value is, or where n is.
func line(n *yamlnode.Node, keys ...string) int {
	at := n.Line
	for _, key := range keys {
		if n = entry(n, key); n == nil {
			return at
		}
		at = n.Line
	}
	return at
}

var (
	kindName   = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]{0,62}$`)
	apiVersion = regexp.MustCompile(`^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
)

// sound looks at what every object has.
func (d *decoder) sound(u *unstructured.Unstructured, n *yamlnode.Node) error {
	text := func(fields ...string) (string, bool) {
		s, _, err := unstructured.NestedString(u.Object, fields...)
		return s, err == nil
	}
	version, ok1 := text("apiVersion")
	kind, ok2 := text("kind")
	if _, ok := u.Object["metadata"].(map[string]any); !ok {
		return d.fail(line(n, "metadata"), "metadata is missing, or no mapping")
	}
	name, ok3 := text("metadata", "name")
	namespace, ok4 := text("metadata", "namespace")
	switch {
	case !ok1 || !apiVersion.MatchString(version):
		return d.fail(line(n, "apiVersion"), "apiVersion is missing, or no API version such as v1 or apps/v1")
	case !ok2 || !kindName.MatchString(kind):
		return d.fail(line(n, "kind"), "kind is missing, or no kind such as ConfigMap")
	case name == "" && ok3:
		return d.fail(line(n, "metadata"), "metadata.name is missing: what is applied has a name, and no generateName")
	case !ok3 || len(name) > 253 || len(content.IsPathSegmentName(name)) > 0:
		return d.fail(line(n, "metadata", "name"), "metadata.name is no name")
	case !ok4 || namespace != "" && len(validation.IsDNS1123Label(namespace)) > 0:
		return d.fail(line(n, "metadata", "namespace"), "metadata.namespace is no name of a namespace")
	}
	for _, field := range []string{"labels", "annotations"} {
		if _, _, err := unstructured.NestedStringMap(u.Object, "metadata", field); err != nil {
			return d.fail(line(n, "metadata", field), "metadata.%s is a mapping from texts to texts: put numbers and yes or no in quotes", field)
		}
	}
	return nil
}
