package manifests

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	kjson "sigs.k8s.io/json"

	"github.com/pipeops/pipeops-vm-agent/internal/decode"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// What a stream of manifests may be.
const (
	MaxBytes     = runnerapi.MaxManifestsBody // of the stream
	MaxDocuments = 1000                       // and objects, those of Lists included
)

// limits are those of a stream. The deepest schema of a well-known CRD has half of the depth.
var limits = decode.LimitsFor(MaxBytes)

// Documents are the documents of a stream.
type Documents struct {
	Objects []*unstructured.Unstructured
	where   map[*unstructured.Unstructured]string
}

// Where returns where an object was read: "document 3, line 41".
func (d Documents) Where(u *unstructured.Unstructured) string { return d.where[u] }

// Read decodes a stream of YAML documents, or JSON, which is also YAML. It replaces lists by their
// items, and removes what only the cluster sets. Its error names all documents that are wrong, up
// to problem.MaxTold, each with the line. With the error, Read returns the objects of the others,
// so that the caller can report what is wrong with these as well. The caller has reserved the
// memory that it takes (decode.Limits.Memory).
func Read(r io.Reader) (Documents, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxBytes+1))
	if err != nil {
		return Documents{}, fmt.Errorf("read the manifests: %w", err)
	}
	if len(text) > MaxBytes {
		return Documents{}, problem.Errorf(problem.TooLarge, "apply it as several sets", "the manifests have more than %d bytes", MaxBytes)
	}
	if err := limits.Scan(text); decode.Exceeded(err) {
		return Documents{}, problem.Errorf(problem.TooLarge, "apply it as several sets", "the manifests are too large: %v", err)
	} else if err != nil {
		return Documents{}, problem.Errorf(problem.Invalid, "save the file as UTF-8", "%v", err).WithField("body")
	}
	d := &decoder{docs: Documents{where: map[*unstructured.Unstructured]string{}}, budget: limits.Budget()}
	for _, part := range decode.Split(text) {
		if d.document(part); d.full {
			return Documents{}, problem.Together(d.refused)
		}
	}
	return d.docs, problem.Together(d.refused)
}

// decoder reads document after document.
type decoder struct {
	docs   Documents
	number int // of the document, from 1; those that are empty do not count
	first  int // line of its text
	budget *decode.Budget

	refused []error
	full    bool // a limit of all documents is exceeded, or an answer has no room for more errors
}

// refuse records what is wrong with a document.
func (d *decoder) refuse(err error) {
	d.refused = append(d.refused, err)
	d.full = d.full || len(d.refused) == problem.MaxTold
}

// fail names the document and the line, counted within the document's text.
func (d *decoder) fail(line int, format string, args ...any) error {
	at := d.at(line)
	return problem.Errorf(problem.Invalid, "correct the document", format, args...).WithField("body").WithLocation(at)
}

// unread returns why a document was not read; its line is counted within the stream.
func (d *decoder) unread(err error) error {
	e := &decode.Error{}
	if !errors.As(err, &e) {
		return err
	}
	return d.fail(e.Line-d.first+1, "%s", e.Message)
}

func (d *decoder) at(line int) string {
	return fmt.Sprintf("document %d, line %d", d.number, d.first+line-1)
}

func (d *decoder) document(p decode.Part) {
	d.number++
	d.first = p.Line
	document, err := d.budget.Document(p)
	if err != nil {
		d.full = decode.Exceeded(err)
		d.refuse(d.unread(err))
		return
	}
	if document == nil { // comments alone
		d.number--
		return
	}
	if d.number > MaxDocuments {
		d.tooMany(document.Root)
		return
	}
	object, err := d.decode(document)
	if err != nil {
		d.refuse(err)
		return
	}
	d.take(object, document.Root)
}

func (d *decoder) decode(document *decode.Document) (map[string]any, error) {
	root := document.Root
	if root.Kind != decode.Mapping {
		return nil, d.fail(root.Line, "a manifest is a mapping with apiVersion, kind and metadata")
	}
	raw, err := document.JSON()
	if err != nil {
		return nil, d.unread(err)
	}
	object := map[string]any{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &object); err != nil {
		return nil, d.fail(root.Line, "the document cannot be read as Kubernetes reads YAML")
	}
	return object, nil
}

func (d *decoder) tooMany(n *decode.Node) {
	d.full = true
	d.refuse(problem.Errorf(problem.TooLarge, "apply them as several sets", "there are more than %d manifests", MaxDocuments).
		WithField("body").WithLocation(d.at(n.Line)))
}

// take adds an object, or the items of a List or of another list, such as a ConfigMapList.
func (d *decoder) take(object map[string]any, node *decode.Node) {
	u := &unstructured.Unstructured{Object: object}
	if items, isList := decode.Items(object); isList {
		d.takeAll(items, node)
		return
	}
	if err := d.sound(u, node); err != nil {
		d.refuse(err)
		return
	}
	if len(d.docs.Objects) == MaxDocuments {
		d.tooMany(node)
		return
	}
	for _, field := range []string{"managedFields", "resourceVersion", "uid", "creationTimestamp", "generation", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds"} {
		unstructured.RemoveNestedField(object, "metadata", field)
	}
	delete(object, "status") // only the cluster sets it
	d.docs.Objects = append(d.docs.Objects, u)
	d.docs.where[u] = d.at(node.Line)
}

// takeAll adds the items of a list.
func (d *decoder) takeAll(items []any, list *decode.Node) {
	for i, item := range items {
		at := cmp.Or(decode.At(list, "items", i), list)
		if fields, ok := item.(map[string]any); ok {
			d.take(fields, at)
		} else {
			d.refuse(d.fail(at.Line, "an item of a List is a manifest"))
		}
		if d.full {
			return
		}
	}
}

// line returns where a key's value is, or where n is.
func line(n *decode.Node, keys ...any) int {
	for depth := len(keys); depth > 0; depth-- {
		if at := decode.At(n, keys[:depth]...); at != nil {
			return at.Line
		}
	}
	return n.Line
}

var (
	kindName   = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]{0,62}$`)
	apiVersion = regexp.MustCompile(`^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
)

// sound looks at what every object has.
func (d *decoder) sound(u *unstructured.Unstructured, n *decode.Node) error {
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
		return d.fail(line(n, "metadata", "name"), "metadata.name is not a name")
	case !ok4 || namespace != "" && len(validation.IsDNS1123Label(namespace)) > 0:
		return d.fail(line(n, "metadata", "namespace"), "metadata.namespace is not a name of a namespace")
	}
	for _, field := range []string{"labels", "annotations"} {
		if err := d.texts(u, n, field); err != nil {
			return err
		}
	}
	return nil
}

// texts refuses a field of the metadata that is not a mapping from texts to texts.
func (d *decoder) texts(u *unstructured.Unstructured, n *decode.Node, field string) error {
	value, found, err := unstructured.NestedFieldNoCopy(u.Object, "metadata", field)
	pairs, ok := value.(map[string]any)
	if err != nil || found && value != nil && !ok {
		return d.fail(line(n, "metadata", field), "metadata.%s is not a mapping from texts to texts", field)
	}
	for _, key := range slices.Sorted(maps.Keys(pairs)) {
		if _, ok := pairs[key].(string); !ok {
			return d.fail(line(n, "metadata", field, key), "metadata.%s.%.100s has to be a text: put it in quotes", field, key)
		}
	}
	return nil
}
