package announce_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

type object = map[string]any

const (
	asyncAPIFile   = "../../docs/asyncapi.json"
	asyncAPIFrozen = "../../docs/asyncapi/v1.json"
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

var typeConstant = regexp.MustCompile(`(?m)^\s+\w+ +Type = "([^"]+)"`)

// eventTypes returns the types of all events that the package declares.
func eventTypes(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, found := range typeConstant.FindAllStringSubmatch(string(source), -1) {
			names = append(names, found[1])
		}
	}
	require.NotEmpty(t, names)
	return names
}

// Older readers were written by the frozen schema.
func TestEvent_MatchesSchema(t *testing.T) {
	kinds, now := eventTypes(t), readDocument(t, asyncAPIFile)
	for _, file := range []string{asyncAPIFile, asyncAPIFrozen} {
		validate := validator(t, file)
		for _, name := range kinds {
			kind := announce.Type(name)
			sample, ok := lookUp(now, "#/components/messages/"+name)["examples"].([]any)
			require.True(t, ok, "%s has no example", name)
			example := sample[0].(object)["payload"].(object)
			body, err := json.Marshal(example)
			require.NoError(t, err)
			full, err := announce.Decode(body)
			require.NoError(t, err)
			for _, e := range []announce.Event{full, bare(t, kind)} {
				body, err := e.Encode()
				require.NoError(t, err)
				require.NoError(t, validate(kind, body), "%s by %s", kind, file)
			}
			broken := maps.Clone(example)
			delete(broken, "sequence")
			body, err = json.Marshal(broken)
			require.NoError(t, err)
			require.Error(t, validate(kind, body), "the schema looks")
		}
	}
}

// bare is an event of which all is empty that may be.
func bare(t *testing.T, kind announce.Type) announce.Event {
	t.Helper()
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	var e announce.Event
	var err error
	switch {
	case kind.IsAgent():
		e, err = announce.NewAgentEvent(kind, "/controlplane", announce.Agent{ID: "a", Name: "a", State: announce.StatePending}, 1, at)
	case kind.IsRoute():
		e, err = announce.NewRouteEvent(kind, "/controlplane", "a", announce.RouteEvent{Host: "h"}, 1, at)
	case kind.IsAlert():
		e, err = announce.NewAlertEvent(kind, "/controlplane", "a", announce.AlertEvent{Fingerprint: "f", Name: "A"}, 1, at)
	default:
		e, err = announce.NewAppEvent(kind, "/controlplane", "a", announce.AppEvent{Namespace: "n", Name: "a"}, 1, at)
	}
	require.NoError(t, err)
	return e
}

// Reads events as earlier versions sent them, and as a later version may.
func TestDecode_StoredEvents(t *testing.T) {
	files, err := filepath.Glob("testdata/events/*.json")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), len(eventTypes(t))+2)
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

// Resolves all references, and checks what AsyncAPI 3.0 requires.
func TestAsyncAPI_Consistent(t *testing.T) {
	doc := readDocument(t, asyncAPIFile)
	references := 0
	walk(doc, func(o object) {
		if ref, ok := o["$ref"].(string); ok {
			references++
			assert.NotNil(t, lookUp(doc, ref), "%s is nowhere", ref)
		}
	})
	assert.Greater(t, references, 30)
	assert.Equal(t, "3.0.0", doc["asyncapi"])
	for _, o := range doc["operations"].(object) {
		operation := o.(object)
		assert.Contains(t, []any{"send", "receive"}, operation["action"])
		assert.NotNil(t, operation["channel"])
	}
}

func readDocument(t *testing.T, file string) object {
	t.Helper()
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	var doc object
	require.NoError(t, json.Unmarshal(raw, &doc))
	return doc
}

func walk(v any, visit func(object)) {
	switch v := v.(type) {
	case object:
		visit(v)
		for _, inner := range v {
			walk(inner, visit)
		}
	case []any:
		for _, item := range v {
			walk(item, visit)
		}
	}
}

// lookUp follows a reference within the document.
func lookUp(doc object, ref string) object {
	at := doc
	for part := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
		at, _ = at[part].(object)
	}
	return at
}
