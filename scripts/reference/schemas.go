package main

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"
)

type object = map[string]any

// schemas makes JSON Schemas of the types of this wire: their fields, by their tags, with
// their comments. Unknown fields are allowed, which generators of APIs forbid: a reader
// must live with those that come later.
type schemas struct {
	comments map[string]string // by Type or Type.Field
	made     object
	order    map[string][]string // names of the fields of each structure, as its Go type has them
}

// enums are the values of strings; the wire's other strings are free.
var enums = map[string][]string{
	"Agent.state":       {"pending", "online", "offline", "revoked"},
	"AgentUpdate.state": {"idle", "waiting", "updating", "done", "failed", "refused"},
}

func newSchemas(folder string) (*schemas, error) {
	comments, err := commentsOf(folder)
	return &schemas{comments: comments, made: object{}, order: map[string][]string{}}, err
}

// undescribed returns an error for a structure or a field without a comment.
func (s *schemas) undescribed() error {
	for name, schema := range s.made {
		if schema.(object)["description"] == "" {
			return fmt.Errorf("%s has no comment", name)
		}
		for field, property := range schema.(object)["properties"].(object) {
			if property.(object)["description"] == nil {
				return fmt.Errorf("%s.%s has no comment", name, field)
			}
		}
	}
	return nil
}

// ref is a reference to the schema of a struct, which is made if it is not there.
func (s *schemas) ref(t reflect.Type) object {
	if _, ok := s.made[t.Name()]; !ok {
		s.made[t.Name()] = nil // for types that hold themselves
		s.made[t.Name()] = s.structure(t)
	}
	return object{"$ref": "#/components/schemas/" + t.Name()}
}

func (s *schemas) structure(t reflect.Type) object {
	properties, required := object{}, []string{}
	for field := range t.Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		property := s.of(field.Type)
		if values, ok := enums[t.Name()+"."+name]; ok {
			property["enum"] = values
		}
		if text := s.comments[t.Name()+"."+field.Name]; text != "" {
			property["description"] = text
		}
		properties[name] = property
		s.order[t.Name()] = append(s.order[t.Name()], name)
		if !strings.Contains(options, "omit") {
			required = append(required, name)
		}
	}
	schema := object{"type": "object", "properties": properties, "description": s.comments[t.Name()]}
	if len(required) > 0 {
		slices.Sort(required)
		schema["required"] = required
	}
	return schema
}

func (s *schemas) of(t reflect.Type) object {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case t.Kind() == reflect.Pointer:
		return s.of(t.Elem())
	case t.Kind() == reflect.Struct:
		return s.ref(t)
	case t.Kind() == reflect.Slice:
		return object{"type": "array", "items": s.of(t.Elem())}
	case t.Kind() == reflect.Map:
		return object{"type": "object", "additionalProperties": s.of(t.Elem())}
	case t.Kind() == reflect.String:
		return object{"type": "string"}
	case t.Kind() == reflect.Bool:
		return object{"type": "boolean"}
	case t.Kind() == reflect.Uint64:
		return object{"type": "integer", "format": "uint64", "minimum": 0}
	case t.Kind() == reflect.Int, t.Kind() == reflect.Int64:
		return object{"type": "integer", "format": "int64"}
	}
	panic("no schema for " + t.String())
}

// commentsOf reads the comments of the types of a package.
func commentsOf(folder string) (map[string]string, error) {
	paths, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return nil, err
	}
	set, files := token.NewFileSet(), []*ast.File{}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, path, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	about, err := doc.NewFromFiles(set, files, folder, doc.AllDecls)
	if err != nil {
		return nil, err
	}
	comments := map[string]string{}
	for _, typ := range about.Types {
		comments[typ.Name] = text(typ.Doc)
		structure, ok := typ.Decl.Specs[0].(*ast.TypeSpec).Type.(*ast.StructType)
		if !ok {
			continue
		}
		for _, field := range structure.Fields.List {
			for _, name := range field.Names {
				comments[typ.Name+"."+name.Name] = text(field.Doc.Text() + field.Comment.Text())
			}
		}
	}
	return comments, nil
}

func text(comment string) string { return strings.Join(strings.Fields(comment), " ") }
