package console

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// specPrefix begins the names of the form's fields for an App's spec.
const specPrefix = "spec."

// generationField is the form's field with the App's generation from which the form was filled in.
const generationField = "generation"

// firstFields are shown before the others, which are folded away.
var firstFields = []string{"image", "type", "replicas", "ports", "env", "ingress", "resources"}

// examples are values of properties that forms often have.
var examples = map[string]string{
	"ports": `[{"port": 8080}]`, "env": `[{"name": "GREETING", "value": "hello"}]`, "ingress": `{"hosts": [{"host": "www.example.com"}]}`,
	"command": `["/server"]`, "args": `["--verbose"]`, "autoscaling": `{"min": 1, "max": 4}`, "schedule": `{"cron": "0 3 * * *"}`,
	"resources": `{"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}}`,
}

// property is a property of an App's spec, as the schema of the Runner API has it.
type property struct {
	name   string
	schema *huma.Schema
}

// specProperties are the properties of an App's spec, those of most forms first.
var specProperties = sync.OnceValue(func() []property {
	registry := huma.NewMapRegistry("#/", huma.DefaultSchemaNamer)
	of := reflect.TypeFor[runnerapi.AppSpec]()
	spec := huma.SchemaFromType(registry, of)
	var list []property
	for field := range of.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		schema := spec.Properties[name]
		if schema == nil {
			continue
		}
		shown := *schema
		if shown.Ref != "" {
			shown = *registry.SchemaFromRef(shown.Ref)
			shown.Description = schema.Description
		}
		if shown.Description == "" {
			shown.Description = field.Tag.Get("doc")
		}
		list = append(list, property{name, &shown})
	}
	rank := func(p property) int {
		if at := slices.Index(firstFields, p.name); at >= 0 {
			return at
		}
		return len(firstFields)
	}
	slices.SortStableFunc(list, func(a, b property) int { return rank(a) - rank(b) })
	return list
})

// field returns the form's field for a property, with its value in a spec.
func (p property) field(value json.RawMessage) web.Field {
	f := web.Field{
		Name: specPrefix + p.name, Label: p.name, Hint: p.schema.Description, Kind: "text", Value: p.text(value),
		Required: p.name == "image", More: !slices.Contains(firstFields, p.name),
	}
	switch {
	case len(p.schema.Enum) > 0 && p.is(huma.TypeString):
		f.Kind, f.Options = "select", []string{""}
		for _, option := range p.schema.Enum {
			f.Options = append(f.Options, option.(string))
		}
	case p.is(huma.TypeBoolean):
		f.Kind, f.Options = "select", []string{"", "true", "false"}
	case p.is(huma.TypeInteger):
		f.Kind = "number"
		f.Min, f.Max = bound(p.schema.Minimum, 0), bound(p.schema.Maximum, 1<<31-1)
	case !p.is(huma.TypeString):
		f.Kind = "textarea"
		f.Hint += " Write it as JSON"
		if example := examples[p.name]; example != "" {
			f.Hint += ", such as " + example
		}
		f.Hint += "."
	}
	return f
}

func (p property) is(kind string) bool { return p.schema.Type == kind }

func bound(given *float64, otherwise int32) int32 {
	if given == nil {
		return otherwise
	}
	return int32(*given)
}

// text returns a value as the form shows it: text without quotes, and all else as JSON.
func (p property) text(value json.RawMessage) string {
	var text string
	if p.is(huma.TypeString) && json.Unmarshal(value, &text) == nil {
		return text
	}
	var out bytes.Buffer
	if len(value) == 0 || json.Indent(&out, value, "", "  ") != nil {
		return ""
	}
	return out.String()
}

// value returns what a field says, as JSON; nil for nothing. Its error names the field.
func (p property) value(text string) (json.RawMessage, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return nil, nil
	}
	if p.is(huma.TypeString) {
		return json.Marshal(text)
	}
	fix := "write a value of JSON, such as " + p.example()
	if !json.Valid([]byte(text)) {
		return nil, problem.Errorf(problem.Invalid, fix, "%s: is not JSON", p.name)
	}
	err := operatorapi.Decode([]byte(`{"`+p.name+`":`+text+`}`), &runnerapi.AppSpec{})
	var other *json.UnmarshalTypeError
	switch {
	case errors.As(err, &other):
		return nil, problem.Errorf(problem.Invalid, fix, "%s: takes another kind of value than a JSON %s", other.Field, other.Value)
	case err != nil:
		return nil, problem.Errorf(problem.Invalid, fix, "%s: %s", p.name, err.Error())
	}
	return json.RawMessage(text), nil
}

// example returns a value of the property's kind.
func (p property) example() string {
	switch p.schema.Type {
	case huma.TypeArray:
		return cmp.Or(examples[p.name], `["a", "b"]`)
	case huma.TypeObject:
		return cmp.Or(examples[p.name], `{"key": "value"}`)
	}
	return "3"
}

// specFields are the fields of the form for an App's spec.
func specFields(spec runnerapi.AppSpec) ([]web.Field, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	values := map[string]json.RawMessage{}
	if err := json.Unmarshal(text, &values); err != nil {
		return nil, err
	}
	var fields []web.Field
	for _, p := range specProperties() {
		fields = append(fields, p.field(values[p.name]))
	}
	return fields, nil
}

// specIn returns the spec that a form describes. The operator API and the agent validate it.
func specIn(values url.Values) (spec runnerapi.AppSpec, err error) {
	given := map[string]json.RawMessage{}
	for _, p := range specProperties() {
		value, err := p.value(values.Get(specPrefix + p.name))
		if err != nil {
			return spec, err
		}
		if value != nil {
			given[p.name] = value
		}
	}
	text, err := json.Marshal(given)
	if err != nil {
		return spec, err
	}
	return spec, operatorapi.Decode(text, &spec)
}

// askDeploy asks for an App's spec, beginning with that which the App has.
func askDeploy(ctx context.Context, t operatorapi.Target, agent string, query url.Values) (web.Question, error) {
	key, spec := appIn(agent, query), runnerapi.AppSpec{}
	q := web.Question{
		Text:   "The agent deploys the App with this spec. An empty field means the default.",
		Button: "Deploy", With: runnerProgram, Command: web.CommandLine(runnerProgram+" deploy", agent, "-f", "FILE"), Back: agentPath(agent), BackText: agent,
	}
	if key.App == "" {
		q.Fields = []web.Field{
			{Kind: "text", Name: "namespace", Label: "Namespace", Value: key.Namespace, Required: true},
			{Kind: "text", Name: "app", Label: "Name", Required: true},
		}
	} else {
		found, err := operatorapi.GetApp.Do(ctx, t, operatorapi.GetAppInput{AppKey: key})
		if err != nil && (!problem.Is(err, problem.NotFound)) {
			return q, err
		}
		spec = found.Spec
		if found.Generation > 0 {
			q.Hidden = append(q.Hidden, web.Hidden{Name: generationField, Value: strconv.FormatInt(found.Generation, 10)})
		}
		q = appQuestion(agent, query, "deploy", []string{"-f", "FILE"}, q)
	}
	fields, err := specFields(spec)
	q.Fields = append(q.Fields, fields...)
	return q, err
}

func deploy(ctx context.Context, t operatorapi.Target, f form) (outcome, error) {
	key := appIn(f.name, f.values)
	spec, err := specIn(f.values)
	if err != nil {
		return outcome{}, err
	}
	body := operatorapi.DeployAppBody{Spec: spec}
	if text := f.values.Get(generationField); text != "" {
		if body.Generation, err = strconv.ParseInt(text, 10, 64); err != nil {
			return outcome{}, problem.Errorf(problem.BadRequest, "load the page again", "the form has no valid generation of the App")
		}
	}
	_, err = operatorapi.DeployApp.Do(ctx, t, operatorapi.DeployAppInput{Write: f.write(), AppKey: key, Body: body})
	return outcome{to: appPath(key), done: "deploy-app"}, err
}
