package announce_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// validator checks encoded events against the published schema.
func validator(t *testing.T, file string) func(kind announce.Type, body []byte) error {
	t.Helper()
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	require.NoError(t, c.AddResource("asyncapi.json", doc))
	return func(kind announce.Type, body []byte) error {
		schema, err := c.Compile("asyncapi.json#/components/messages/" + string(kind) + "/payload")
		if err != nil {
			return err
		}
		event, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
		if err != nil {
			return err
		}
		return schema.Validate(event)
	}
}

// Older readers were written by the frozen schema.
func TestEvent_MatchesSchema(t *testing.T) {
	for _, file := range []string{asyncAPIFile, asyncAPIFrozen} {
		validate := validator(t, file)
		for _, k := range kinds {
			full := sampleEvent(t, k.kind)
			for _, e := range []announce.Event{full, bare(t, k.kind)} {
				body, err := e.Encode()
				require.NoError(t, err)
				require.NoError(t, validate(k.kind, body), "%s by %s", k.kind, file)
			}
			wrong := decodedSample(t, k.kind)
			delete(wrong, "sequence")
			body, err := json.Marshal(wrong)
			require.NoError(t, err)
			require.Error(t, validate(k.kind, body), "the schema looks")
		}
	}
}

// bare is an event of which all is empty that may be.
func bare(t *testing.T, kind announce.Type) announce.Event {
	t.Helper()
	var e announce.Event
	var err error
	switch {
	case kind.IsAgent():
		e, err = announce.NewAgentEvent(kind, "/controlplane", announce.Agent{ID: "a", Name: "a", State: announce.StatePending}, 1, sampleAgent().LastSeen)
	case kind.IsRoute():
		e, err = announce.NewRouteEvent(kind, "/controlplane", "a", announce.RouteEvent{Host: "h"}, 1, sampleAgent().LastSeen)
	case kind.IsAlert():
		e, err = announce.NewAlertEvent(kind, "/controlplane", "a", announce.AlertEvent{Fingerprint: "f", Name: "A"}, 1, sampleAgent().LastSeen)
	default:
		e, err = announce.NewAppEvent(kind, "/controlplane", "a", announce.AppEvent{Namespace: "n", Name: "a"}, 1, sampleAgent().LastSeen)
	}
	require.NoError(t, err)
	return e
}

// incompatible lists what a reader that was written by the old document trips over in
// events of the new one.
func incompatible(old, now object) (list []string) {
	for _, name := range sortedKeys(old["components"].(object)["messages"].(object)) {
		path := "#/components/messages/" + name + "/payload"
		was, is := lookUp(old, path), lookUp(now, path)
		if is == nil {
			list = append(list, name+" is gone")
			continue
		}
		list = append(list, compare(name, old, now, was, is)...)
	}
	for _, name := range sortedKeys(old["channels"].(object)) {
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
	for _, name := range sortedKeys(properties) {
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

// Runners that were written for version 1 depend on this. If it fails, do not freeze the schema
// again: give the field or the type another name beside the old one.
func TestSchema_Compatible(t *testing.T) {
	assert.Empty(t, incompatible(readDocument(t, asyncAPIFrozen), readDocument(t, asyncAPIFile)))
}

// Reads events as earlier versions sent them, and as a later version may.
func TestDecode_StoredEvents(t *testing.T) {
	files, err := filepath.Glob("testdata/events/*.json")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), len(kinds)+2)
	validate := validator(t, asyncAPIFile)
	for _, file := range files {
		body, err := os.ReadFile(file)
		require.NoError(t, err)
		e, err := announce.Decode(body)
		require.NoError(t, err, file)
		assert.EqualValues(t, 42, e.Sequence, file)
		if strings.HasPrefix(filepath.Base(file), "v1.") {
			require.NoError(t, validate(e.Type, body), file)
		}
	}
}
