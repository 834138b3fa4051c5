package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"

	"k8s.io/client-go/util/jsonpath"
	kjson "sigs.k8s.io/json"

	"github.com/pipeops/pipeops-vm-agent/internal/printable"
)

// parsePath reads a template of kubectl's JSONPath.
func parsePath(template string) (*jsonpath.JSONPath, error) {
	j := jsonpath.New("output").AllowMissingKeys(true)
	if err := j.Parse(template); err != nil {
		return nil, fmt.Errorf("is not a JSONPath template: %w", err)
	}
	return j, nil
}

// writePath prints what a template finds, without a line break, as kubectl does.
func writePath(w io.Writer, v any, template string) error {
	j, err := parsePath(template)
	if err != nil {
		return err
	}
	generic, err := asGeneric(v)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := j.Execute(&text, generic); err != nil {
		return fmt.Errorf("-o jsonpath: %w", err)
	}
	return Raw(w, []byte(printable.Lines(text.String())))
}

// asGeneric returns a value as its JSON has it.
func asGeneric(v any) (generic any, err error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	err = kjson.UnmarshalCaseSensitivePreserveInts(text, &generic)
	return generic, err
}

// relaxed matches a path with or without braces and a leading dot, as kubectl takes it.
var relaxed = regexp.MustCompile(`^\{?\.?([^{}]+?)\}?$`)

// parseField reads the path of a field.
func parseField(path string) (*jsonpath.JSONPath, error) {
	match := relaxed.FindStringSubmatch(path)
	if match == nil {
		return nil, errors.New("is not a path such as .status.phase")
	}
	return parsePath("{." + match[1] + "}")
}

// valueAt returns what is at a path; nil if nothing is.
func valueAt(item any, path string) (any, error) {
	j, err := parseField(path)
	if err != nil {
		return nil, fmt.Errorf("%q %w", path, err)
	}
	results, err := j.FindResults(item)
	if err != nil || len(results) == 0 || len(results[0]) == 0 {
		return nil, err
	}
	return results[0][0].Interface(), nil
}

// writeNames prints a name in each line. It can be an argument of another command.
func writeNames(w io.Writer, v any) error {
	generic, err := asGeneric(v)
	if err != nil {
		return err
	}
	for _, item := range itemsOf(generic) {
		name := nameOf(item)
		if name == "" {
			return Usage(errNoName)
		}
		if err := Print(w, Printable(name)); err != nil {
			return err
		}
	}
	return nil
}

// itemsOf returns the items of a list, or the one that a value is. An empty list may be null.
func itemsOf(generic any) []any {
	if object, ok := generic.(map[string]any); ok {
		items, isList := object["items"]
		if !isList {
			return []any{object}
		}
		generic = items
	}
	items, _ := generic.([]any)
	return items
}

// nameOf returns what identifies an item, in the order in which commands take it.
func nameOf(item any) string {
	fields, _ := item.(map[string]any)
	for _, key := range []string{"name", "id", "host", "revision", "seq"} {
		if v, there := fields[key]; there {
			return fmt.Sprint(v)
		}
	}
	return ""
}
