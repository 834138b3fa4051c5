package operatorapi

import (
	"encoding"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"time"
)

// input is a call's input as it is sent.
type input struct {
	order  []string // of the path's parameters
	path   map[string]string
	query  url.Values
	header http.Header
	body   any // nil for none
}

// inputOf takes an input apart by huma's tags. It leaves out zero values, which stand for absent
// ones.
func inputOf(in any) input {
	out := input{path: map[string]string{}, query: url.Values{}, header: http.Header{}}
	out.add(reflect.Indirect(reflect.ValueOf(in)))
	return out
}

func (i *input) add(v reflect.Value) {
	for n := range v.NumField() {
		field, value := v.Type().Field(n), v.Field(n)
		switch name, in := placeOf(field); {
		case field.Anonymous:
			i.add(value)
		case field.Name == "Body":
			i.body = value.Interface()
		case in == "path":
			i.order = append(i.order, name)
			i.path[name] = textOf(value)
		case value.IsZero():
		case in == "query":
			i.query.Set(name, textOf(value))
		case in == "header":
			i.header.Set(name, textOf(value))
		}
	}
}

func placeOf(field reflect.StructField) (name, in string) {
	for _, in := range []string{"path", "query", "header"} {
		if name, ok := field.Tag.Lookup(in); ok {
			name, _, _ = strings.Cut(name, ",")
			return name, in
		}
	}
	return "", ""
}

// textOf returns a parameter's text as huma parses it.
func textOf(v reflect.Value) string {
	switch value := v.Interface().(type) {
	case time.Time:
		return value.UTC().Format(time.RFC3339Nano)
	case encoding.TextMarshaler:
		text, err := value.MarshalText()
		if err == nil {
			return string(text)
		}
	}
	if v.Kind() != reflect.Slice {
		return fmt.Sprint(v.Interface())
	}
	items := make([]string, v.Len())
	for n := range items {
		items[n] = textOf(v.Index(n))
	}
	return strings.Join(items, ",")
}

// fields returns the fields of the body by their names in JSON.
func (i *input) fields() map[string]any {
	var fields map[string]any
	if text, err := json.Marshal(i.body); err != nil || json.Unmarshal(text, &fields) != nil {
		return nil
	}
	return fields
}

// url returns the path and query of a call.
func (i *input) url(d *Description) string {
	at := d.Path
	for name, value := range i.path {
		at = strings.ReplaceAll(at, "{"+name+"}", url.PathEscape(value))
	}
	if len(i.query) > 0 {
		at += "?" + i.query.Encode()
	}
	return at
}
