package revision

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const (
	maxChanges     = 50
	maxChangeValue = 200
)

// telling are the fields whose values a difference shows. All others may hold
// what only their readers should see: an argument, a command, a variable.
var telling = []string{"image", "type", "resources.", "ports", "rollback", "revisionHistoryLimit", "imagePullSecrets", "schedule"}

// difference returns what changed between two specs: by field, a variable by its name.
func difference(before, now map[string]any) []runnerapi.Change {
	was, is := map[string]string{}, map[string]string{}
	flatten("", before, was)
	flatten("", now, is)
	fields := maps.Clone(was)
	maps.Copy(fields, is)
	changes := []runnerapi.Change{}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		from, had := was[field]
		to, has := is[field]
		if had == has && from == to {
			continue
		}
		if len(changes) == maxChanges {
			return append(changes, runnerapi.Change{Field: "…", Kind: "changed"})
		}
		changes = append(changes, change(field, from, to, had, has))
	}
	return changes
}

func change(field, from, to string, had, has bool) runnerapi.Change {
	c := runnerapi.Change{Field: field, Kind: "changed"}
	switch {
	case !had:
		c.Kind = "added"
	case !has:
		c.Kind = "removed"
	}
	if slices.ContainsFunc(telling, func(t string) bool { return strings.HasPrefix(field, t) }) {
		c.From, c.To = printable.Shorten(from, maxChangeValue), printable.Shorten(to, maxChangeValue)
	}
	return c
}

// flatten turns a tree into values by path. Lists of named things go by their
// names, other lists count as one value.
func flatten(path string, value any, into map[string]string) {
	switch v := value.(type) {
	case map[string]any:
		for key, child := range v {
			flatten(join(path, key), child, into)
		}
	case []any:
		if named, ok := byName(v); ok {
			for name, item := range named {
				into[path+"["+name+"]"] = text(item)
			}
			return
		}
		into[path] = text(v)
	default:
		into[path] = text(v)
	}
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// byName returns a list by the names of its items, where all have one of their own.
func byName(list []any) (map[string]any, bool) {
	out := map[string]any{}
	for _, item := range list {
		m, _ := item.(map[string]any)
		name, _ := m["name"].(string)
		if name == "" || out[name] != nil {
			return nil, false
		}
		out[name] = item
	}
	return out, true
}

func text(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	if v == nil || reflect.ValueOf(v).IsZero() {
		return fmt.Sprint(v)
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v) // cannot be: it came from JSON
	}
	return string(raw)
}
