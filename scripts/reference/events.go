package main

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

const eventsHead = `# Events

<!-- made by go generate ./docs from the Go types; do not edit -->

The control plane announces these events to Runners over RabbitMQ, and sends them to webhooks and
timelines. [delivery.md](delivery.md) describes delivery and order,
[announcements.md](../deployer/announcements.md) what a reader must do.
[asyncapi.json](../asyncapi.json) is the schema, with an example of each type.

An optional field is absent where it has no value. Skip fields and types that you do not know.
`

// eventsReference is the page: types, the envelope, and the structures from the data down.
func eventsReference(doc object, order map[string][]string) []byte {
	var b strings.Builder
	b.WriteString(eventsHead)
	b.WriteString("\n## Types\n\n| type | data | when |\n|---|---|---|\n")
	for _, k := range kinds {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", k.kind, linked(dataOf(k.kind).Name()), k.summary)
	}
	b.WriteString("\n## Envelope\n\nCloudEvents 1.0 in structured JSON, content type `" + announce.ContentType + "`.\n\n")
	tableOfFields(&b, envelope("TYPE", object{"$ref": "#/components/schemas/data", "description": "The data of the type."}), nil)
	schemas := doc["components"].(object)["schemas"].(object)
	data := []string{"Agent", "AppEvent", "RouteEvent", "AlertEvent"}
	others := slices.DeleteFunc(slices.Sorted(maps.Keys(schemas)), func(name string) bool { return slices.Contains(data, name) })
	for _, name := range append(data, others...) {
		_, said, _ := strings.Cut(schemas[name].(object)["description"].(string), " is ")
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n", name, wrapped(strings.ToUpper(said[:1])+said[1:]))
		tableOfFields(&b, schemas[name].(object), order[name])
	}
	return []byte(b.String())
}

func linked(schema string) string { return fmt.Sprintf("[%s](#%s)", schema, strings.ToLower(schema)) }

// tableOfFields writes the fields of a schema, in the order of the names, or else sorted.
func tableOfFields(b *strings.Builder, schema object, names []string) {
	properties, required := schema["properties"].(object), []string{}
	if of, ok := schema["required"].([]string); ok {
		required = of
	}
	if names == nil {
		names = slices.Sorted(maps.Keys(properties))
	}
	b.WriteString("| field | type | |\n|---|---|---|\n")
	for _, name := range names {
		property := properties[name].(object)
		optional := ""
		if !slices.Contains(required, name) {
			optional = ", optional"
		}
		fmt.Fprintf(b, "| `%s` | %s%s | %s |\n", name, typeOf(property), optional, meaning(name, property))
	}
}

func typeOf(property object) string {
	if ref, ok := property["$ref"].(string); ok {
		name := ref[strings.LastIndex(ref, "/")+1:]
		if name == "data" {
			return "object"
		}
		return linked(name)
	}
	if format, ok := property["format"].(string); ok && property["type"] == "string" {
		return format
	}
	switch property["type"] {
	case "array":
		return "list of " + typeOf(property["items"].(object))
	case "object":
		return "map of " + typeOf(property["additionalProperties"].(object))
	}
	return property["type"].(string)
}

// meaning is the description without the name of the Go field, and the values there are.
func meaning(name string, property object) string {
	text, _ := property["description"].(string)
	if first, rest, _ := strings.Cut(text, " "); strings.EqualFold(first, name) {
		rest = strings.TrimPrefix(strings.TrimPrefix(rest, "is "), "are ")
		text = strings.ToUpper(rest[:1]) + rest[1:]
	}
	if value, ok := property["const"].(string); ok && value != "TYPE" {
		return strings.TrimSpace(text + " Always `" + value + "`.")
	}
	if values, ok := property["enum"].([]string); ok {
		text = strings.TrimSpace(text + " One of `" + strings.Join(values, "`, `") + "`.")
	}
	return text
}

func dataOf(kind announce.Type) reflect.Type {
	switch {
	case kind.IsAgent():
		return reflect.TypeFor[announce.Agent]()
	case kind.IsRoute():
		return reflect.TypeFor[announce.RouteEvent]()
	case kind.IsAlert():
		return reflect.TypeFor[announce.AlertEvent]()
	}
	return reflect.TypeFor[announce.AppEvent]()
}

// wrapped breaks lines at 100 columns.
func wrapped(text string) string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > 100 {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	return strings.Join(append(lines, line), "\n")
}
