package decode

import (
	"cmp"
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/pipeops/pipeops-vm-agent/internal/similar"
)

// Into decodes a document into a value. Fields that the value does not have, and values of another
// type than their field, are errors with field and line: an Error, or Errors of several. A plain
// number or word is taken as it is written where a text has to be: 8080, 1.10, true.
func (d *Document) Into(into any) error {
	f := fitting{document: d}
	value := f.fit(d.value, reflect.TypeOf(into))
	if err := f.err(); err != nil {
		return err
	}
	raw, err := (&Document{Root: d.Root, part: d.part, value: value}).JSON()
	if err != nil {
		return err
	}
	return Strict(raw, into)
}

// CheckTypes returns which field of a value, as JSON decodes it, cannot be decoded into a value
// like sample. Unknown fields are left to others.
func CheckTypes(value, sample any) error {
	f := fitting{loose: true}
	f.fit(value, reflect.TypeOf(sample))
	return f.err()
}

// CheckFields is like CheckTypes, and refuses unknown fields.
func CheckFields(value, sample any) error {
	f := fitting{}
	f.fit(value, reflect.TypeOf(sample))
	return f.err()
}

// fitting compares a value with a type.
type fitting struct {
	document *Document // nil for a value without a text
	loose    bool      // unknown fields are left to others
	path     []any     // keys and indices of where it is
	faults   Errors
}

// maxFaults bounds the faults that are reported of one value.
const maxFaults = 10

func (f *fitting) err() error {
	switch len(f.faults) {
	case 0:
		return nil
	case 1:
		return f.faults[0]
	}
	slices.SortStableFunc(f.faults, func(a, b *Error) int { return cmp.Compare(a.Line, b.Line) })
	return f.faults
}

// fit returns the value, with the texts of scalars where the type wants a text. What does not fit
// is added to the faults.
func (f *fitting) fit(value any, t reflect.Type) any {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if value == nil || t.Kind() == reflect.Interface {
		return value
	}
	if decodes, err := decodesItself(value, t); decodes {
		if err != nil { // it may quote the value
			f.fail("is not a valid %s", t.Name())
		}
		return value
	}
	switch value := value.(type) {
	case map[string]any:
		return f.mapping(value, t)
	case []any:
		if t.Kind() != reflect.Slice && t.Kind() != reflect.Array {
			f.mistyped("a list", t)
			return nil
		}
		for i, item := range value {
			value[i] = f.below(i, item, t.Elem())
		}
		return value
	}
	return f.scalar(value, t)
}

// below fits a value that is within the current one.
func (f *fitting) below(step, value any, t reflect.Type) any {
	f.path = append(f.path, step)
	defer func() { f.path = f.path[:len(f.path)-1] }()
	return f.fit(value, t)
}

func (f *fitting) mapping(value map[string]any, t reflect.Type) any {
	if t.Kind() != reflect.Struct && t.Kind() != reflect.Map {
		f.mistyped("an object", t)
		return nil
	}
	var fields map[string]reflect.Type
	if t.Kind() == reflect.Struct {
		fields = fieldsOf(t)
	}
	for _, key := range slices.Sorted(maps.Keys(value)) {
		of, known := fields[key]
		switch {
		case t.Kind() == reflect.Map:
			of = t.Elem()
		case !known && f.loose:
			continue
		case !known:
			f.unknown(key, fields)
			continue
		}
		value[key] = f.below(key, value[key], of)
	}
	return value
}

// unknown adds the fault of a key that the type does not have.
func (f *fitting) unknown(key string, fields map[string]reflect.Type) {
	f.path = append(f.path, key)
	defer func() { f.path = f.path[:len(f.path)-1] }()
	e := f.fault("unknown field")
	e.Unknown = true
	if meant := similar.Nearest(key, slices.Sorted(maps.Keys(fields))); meant != "" {
		e.Message += " (did you mean " + meant + "?)"
	}
	f.add(e)
}

func (f *fitting) scalar(value any, t reflect.Type) any {
	var fits bool
	kind := "a number"
	switch value := value.(type) {
	case string:
		kind, fits = "a text", t.Kind() == reflect.String || t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8
	case bool:
		kind, fits = "true or false", t.Kind() == reflect.Bool
	default:
		fits = holds(t, value)
	}
	if fits {
		return value
	}
	if t.Kind() == reflect.String && f.document != nil {
		if n := At(f.document.Root, f.path...); n != nil {
			return n.Value
		}
	}
	f.mistyped(kind, t)
	return nil
}

// holds reports whether a number fits into a type.
func holds(t reflect.Type, number any) bool {
	zero := reflect.New(t).Elem()
	n := reflect.ValueOf(number)
	whole := n.CanInt() || n.CanUint() || n.CanFloat() && n.Float() == math.Trunc(n.Float())
	switch {
	case zero.CanFloat():
		return true
	case !whole || !zero.CanInt() && !zero.CanUint():
		return false
	case zero.CanUint():
		return n.CanUint() || n.CanInt() && n.Int() >= 0 // one that is too large fails when it is decoded
	case n.CanInt():
		return !zero.OverflowInt(n.Int())
	}
	return n.CanFloat() && math.Abs(n.Float()) < 1<<53 && !zero.OverflowInt(int64(n.Float()))
}

func (f *fitting) mistyped(is string, t reflect.Type) {
	want := "an object"
	switch t.Kind() {
	case reflect.String:
		want = "a text; put it in quotes"
	case reflect.Bool:
		want = "true or false"
	case reflect.Slice, reflect.Array:
		want = "a list"
	case reflect.Float32, reflect.Float64:
		want = "a number"
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Int, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uint:
		want = fmt.Sprintf("a whole number of %d bits", t.Bits())
	}
	f.fail("is %s, but has to be %s", is, want)
}

// fail adds a fault of the value at the current path.
func (f *fitting) fail(format string, args ...any) { f.add(f.fault(format, args...)) }

func (f *fitting) add(e *Error) {
	if len(f.faults) < maxFaults {
		f.faults = append(f.faults, e)
	}
}

func (f *fitting) fault(format string, args ...any) *Error {
	e := &Error{Field: pathText(f.path), Message: fmt.Sprintf(format, args...)}
	for depth := len(f.path); f.document != nil && depth >= 0; depth-- {
		if n := At(f.document.Root, f.path[:depth]...); n != nil {
			e.Line = f.document.part.Line + n.Line - 1
			break
		}
	}
	return e
}

func pathText(path []any) string {
	var text strings.Builder
	for i, step := range path {
		switch step := step.(type) {
		case int:
			fmt.Fprintf(&text, "[%d]", step)
		case string:
			if i > 0 {
				text.WriteByte('.')
			}
			fmt.Fprintf(&text, "%.100s", step)
		}
	}
	return text.String()
}

// At returns the node at a path of keys and indices, or nil. It follows aliases and merge keys.
func At(n *Node, path ...any) *Node {
	for n != nil && n.Kind == Alias {
		n = n.Alias
	}
	if n == nil || len(path) == 0 {
		return n
	}
	switch step := path[0].(type) {
	case int:
		if n.Kind == Sequence && step < len(n.Content) {
			return At(n.Content[step], path[1:]...)
		}
	case string:
		return At(entry(n, step, 0), path[1:]...)
	}
	return nil
}

// entry returns the value of a key of a mapping, or nil.
func entry(n *Node, key string, depth int) *Node {
	for n.Kind == Alias {
		n = n.Alias
	}
	if n.Kind != Mapping || depth > Text.Depth {
		return nil
	}
	var merged []*Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		if name, err := (Part{}).key(n.Content[i]); err == nil && name == key {
			return n.Content[i+1]
		}
		if n.Content[i].ShortTag() == mergeTag {
			merged = mergedBy(n.Content[i+1])
		}
	}
	for _, mapping := range merged {
		if found := entry(mapping, key, depth+1); found != nil {
			return found
		}
	}
	return nil
}

var (
	byJSON = reflect.TypeFor[json.Unmarshaler]()
	byText = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// decodesItself reports whether a type has its own decoder, and what that decoder returns.
func decodesItself(value any, t reflect.Type) (bool, error) {
	p := reflect.PointerTo(t)
	if !p.Implements(byJSON) && !p.Implements(byText) {
		return false, nil
	}
	raw, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(raw, reflect.New(t).Interface())
	}
	return true, err
}

// knownFields has what fieldsOf has returned: a manifest of many objects asks often.
var knownFields sync.Map

// fieldsOf returns the types of a struct's fields by their names in JSON.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	if known, ok := knownFields.Load(t); ok {
		return known.(map[string]reflect.Type)
	}
	fields := map[string]reflect.Type{}
	for _, field := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous && name == "" || !field.IsExported() || name == "-" {
			continue
		}
		if name == "" {
			name = field.Name
		}
		fields[name] = field.Type
	}
	knownFields.Store(t, fields)
	return fields
}
