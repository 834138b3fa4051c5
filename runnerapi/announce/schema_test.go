package announce_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
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

func newSchemas(t *testing.T) *schemas {
	t.Helper()
	return &schemas{comments: commentsOf(t), made: object{}, order: map[string][]string{}}
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

// commentsOf reads the comments of the types in this folder.
func commentsOf(t *testing.T) map[string]string {
	t.Helper()
	files := token.NewFileSet()
	parsed, err := parser.ParseDir(files, ".", func(f fs.FileInfo) bool { return !strings.HasSuffix(f.Name(), "_test.go") }, parser.ParseComments) //nolint:staticcheck // one folder, no build tags
	require.NoError(t, err)
	comments := map[string]string{}
	for _, typ := range doc.New(parsed["announce"], "announce", doc.AllDecls).Types {
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
	return comments
}

func text(comment string) string { return strings.Join(strings.Fields(comment), " ") }

// sampleApp and sampleAgent have a value in each field.
func sampleRoute(kind announce.Type) announce.RouteEvent {
	route := announce.RouteEvent{Host: "www.example.com", Namespace: "shop", App: "web"}
	if kind == announce.RouteSuspended {
		route.Reason = "another agent has a better proof of the host"
	}
	return route
}

func sampleAlert() announce.AlertEvent {
	return announce.AlertEvent{
		Fingerprint: "7df1dc9aa9e0c1b8", Name: "PipeOpsAppFailed", Severity: "critical", Namespace: "shop", App: "web",
		Summary: "The App shop/web does not serve: ImageNotFound", StartedAt: time.Date(2026, 11, 21, 11, 55, 0, 0, time.UTC),
	}
}

func sampleApp() announce.AppEvent {
	return announce.AppEvent{
		Namespace: "shop", Name: "web", Image: "registry.example.com/web:2", Generation: 3, Replicas: 2, Ready: 1,
		Cause: "ImageNotFound", Message: "registry.example.com/web:2 does not exist", Fix: "push it, or deploy another",
	}
}

func sampleAgent() announce.Agent {
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	cpu, memory := int64(1250), int64(3<<30)
	return announce.Agent{
		ID: "k3v9q2m7", Name: "shop-eu-1", Labels: map[string]string{"env": "prod"}, State: announce.StateOnline,
		Endpoints:         []announce.Endpoint{{Address: "edge.example.com:8444", ServerName: "k3v9q2m7.agents.pipeops.internal"}},
		KubernetesVersion: "v1.30.4+k3s1", Distribution: "k3s", Provider: "hetzner", AgentVersion: "v1.2.3", RunnerAPIVersion: "v1",
		Capacity: announce.Capacity{Nodes: 1, Pods: 110, RunningPods: 14, CPUMillis: 4000, MemoryBytes: 8 << 30, UsedCPUMillis: &cpu, UsedMemoryBytes: &memory},
		Update:   &announce.AgentUpdate{State: "failed", From: "v1.2.3", To: "v1.3.0", Reason: "it never registered"},
		Components: []announce.Component{
			{Name: "vpa", Version: "0.11.0", Ready: true},
			{Name: "grafana", Version: "12.11.1", Cause: "ImageNotFound", Message: "the registry has no such image"},
		},
		Hosts:  []string{"shop.example.com"},
		Clones: []announce.Clone{{ClusterUID: "3b1c", Instance: "vm-2", Address: "192.0.2.7", FirstSeen: at, LastSeen: at}}, RegisteredAt: at, LastSeen: at,
	}
}
