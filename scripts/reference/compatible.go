package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// checkCompatible returns an error where Runners that were written for version 1 of the AsyncAPI
// document cannot process the new one. Do not freeze the schema again then: give the field or the
// type another name, and keep the old one.
func checkCompatible(root string, document []byte) error {
	frozen, err := os.ReadFile(filepath.Join(root, "docs", "asyncapi", "v1.json"))
	if err != nil {
		return err
	}
	var old, now object
	if err := errors.Join(json.Unmarshal(frozen, &old), json.Unmarshal(document, &now)); err != nil {
		return err
	}
	if list := incompatible(old, now); len(list) > 0 {
		return fmt.Errorf("the events are not compatible with docs/asyncapi/v1.json:\n%s", strings.Join(list, "\n"))
	}
	return nil
}

// incompatible lists what a reader that was written by the old document cannot process in events
// of the new one.
func incompatible(old, now object) (list []string) {
	for _, name := range slices.Sorted(maps.Keys(old["components"].(object)["messages"].(object))) {
		path := "#/components/messages/" + name + "/payload"
		was, is := lookUp(old, path), lookUp(now, path)
		if is == nil {
			list = append(list, name+" is gone")
			continue
		}
		list = append(list, compare(name, old, now, was, is)...)
	}
	for _, name := range slices.Sorted(maps.Keys(old["channels"].(object))) {
		path := "#/channels/" + name
		if was, is := lookUp(old, path)["address"], lookUp(now, path)["address"]; was != is {
			list = append(list, fmt.Sprintf("channel %s is at %v, not %v", name, is, was))
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func compare(path string, old, now, was, is object) (list []string) {
	was, is = resolve(old, was), resolve(now, is)
	bad := func(format string, args ...any) { list = append(list, path+": "+fmt.Sprintf(format, args...)) }
	for _, key := range []string{"type", "format", "const", "pattern"} {
		if was[key] != is[key] {
			bad("%s is %v, not %v", key, is[key], was[key])
		}
	}
	if values, ok := was["enum"].([]any); ok {
		left, _ := is["enum"].([]any)
		for _, v := range values {
			if !slices.Contains(left, v) {
				bad("value %v is gone", v)
			}
		}
	}
	before, after := strings.Fields(fmt.Sprint(was["required"])), strings.Fields(fmt.Sprint(is["required"]))
	if fmt.Sprint(before) != fmt.Sprint(after) {
		bad("required is %v, not %v", is["required"], was["required"])
	}
	properties, _ := was["properties"].(object)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		property, ok := lookUp(is, "#/properties/"+name), true
		if property == nil {
			bad("%s is gone", name)
			ok = false
		}
		if ok {
			list = append(list, compare(path+"."+name, old, now, properties[name].(object), property)...)
		}
	}
	for _, key := range []string{"items", "additionalProperties"} {
		if inner, ok := was[key].(object); ok {
			list = append(list, compare(path+"[]", old, now, inner, lookUp(is, "#/"+key))...)
		}
	}
	return list
}

func resolve(doc, schema object) object {
	if ref, ok := schema["$ref"].(string); ok {
		return lookUp(doc, ref)
	}
	return schema
}

// lookUp follows a reference within the document.
func lookUp(doc object, ref string) object {
	at := doc
	for part := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
		at, _ = at[part].(object)
	}
	return at
}
