package contract

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// Request is a generated request.
type Request struct {
	Op     *Operation
	Method string
	Path   string
	Query  url.Values
	Raw    string // the query, instead of Query
	Header http.Header
	Body   []byte
}

// RawQuery returns the query as it is sent.
func (r Request) RawQuery() string {
	if r.Raw != "" {
		return r.Raw
	}
	return r.Query.Encode()
}

// DryRun reports whether the request is a dry run.
func (r Request) DryRun() bool {
	query, _ := url.ParseQuery(r.RawQuery()) // one that cannot be parsed is refused
	return slices.Contains(query["dryRun"], "true")
}

// Generator generates requests from a document: valid ones, and slightly wrong ones.
type Generator struct {
	// Names are valid values of path parameters, by the parameter's name.
	Names map[string][]string

	doc *Document
	rnd *rand.Rand
}

// NewGenerator returns a generator that makes the same requests for the same seed.
func NewGenerator(doc *Document, seed uint64) *Generator {
	return &Generator{doc: doc, rnd: rand.New(rand.NewPCG(seed, 0))}
}

// words are tried if a schema wants a text.
var words = []string{
	"web", "a", "web-1", "staging", "1", "0", "-1", "", " ", "100m", "64Mi", "1.5Gi", "/", "/srv/a", "/readyz", "10s", "5m", "1h30m", "25%",
	"0 3 * * *", "@daily", "Europe/Berlin", "a.example.com", "*.example.com", "registry.example.com/shop/web:1.4.2", "Opaque", "kubernetes.io/tls",
	"0123456789012345678901234567890123456789", "main", "NAME", "é€😀", "2026-01-02T03:04:05Z", "aGVsbG8=", "true", "null", "..", "a/b", strings.Repeat("x", 300),
}

// odd are texts that a server must refuse or accept unchanged.
var odd = []string{"null", "1.0", "1e0", "1e30", "-1", "true", `"\ud800"`, `"\u0000"`, `[]`, `{}`, `[null]`, `{"a":null}`, `"` + "\xff" + `"`, "0.5", `""`}

// malformed are queries that no encoder writes.
var malformed = []string{
	"%zz", "%", "a=%f", "a=%ff", "%ff=1", "%00", "=", "=1", "=&=", "&", "&&=", ";", "a;b", "dryRun=true;wait=1s", "dryRun", "dryRun=true&%zz",
	"dryRun=%74rue", "dryRun=true&=", "dry+Run=true", "[]=1", "a[0]=b", "?", "wait=1ms?dryRun=true", "namespace=%2e%2e", "+=+",
}

// waits are values of parameters that would otherwise delay the answer.
var waits = []string{"0s", "1ms", "20ms", "1h", "-1s", "soon", ""}

// Next returns the next request.
func (g *Generator) Next() Request {
	r := Request{Op: g.doc.Operations[g.rnd.IntN(len(g.doc.Operations))], Query: url.Values{}, Header: http.Header{}}
	r.Method, r.Path = r.Op.Method, r.Op.Path
	if r.Method == http.MethodGet && g.oneIn(10) {
		r.Method = http.MethodHead
	}
	for _, p := range r.Op.Parameters {
		switch {
		case p.In == "path":
			r.Path = strings.Replace(r.Path, "{"+p.Name+"}", g.pathPart(r.Op, p), 1)
		case !p.Required && !g.oneIn(3):
		case p.In == "query":
			r.Query[p.Name] = g.values(p)
		case p.In == "header":
			r.Header[http.CanonicalHeaderKey(p.Name)] = g.values(p)
		}
	}
	if g.oneIn(40) {
		r.Query["nothing"] = []string{"1"}
	}
	if slices.Contains(r.Query["follow"], "true") || strings.HasSuffix(r.Op.Path, "/apps/{name}/events") {
		r.Query.Del("follow") // nothing ever settles without a controller
	}
	if g.oneIn(25) {
		r.Raw = pick(g, malformed)
	}
	g.body(&r)
	return r
}

func (g *Generator) oneIn(n int) bool { return g.rnd.IntN(n) == 0 }

func pick[T any](g *Generator, from []T) T { return from[g.rnd.IntN(len(from))] }

// pathPart prefers existing objects. Without a controller, a deleted namespace stays.
func (g *Generator) pathPart(op *Operation, p Parameter) string {
	switch {
	case g.oneIn(12):
		return url.PathEscape(pick(g, append(words, "UPPER", "a%2Fb", "\xff")[1:]))
	case op.ID == kubernetesAPI:
		return pick(g, []string{"version", "api", "api/v1/namespaces/production/pods", "apis/apps/v1/deployments", "..%2fapi", "api/v1/secrets"})
	case len(g.Names[p.Name]) > 0:
		return pick(g, g.Names[p.Name])
	case p.Name == "namespace" && op.ID == "delete-namespace":
		return pick(g, []string{"gone", "kube-system", "pipeops"})
	case p.Name == "namespace":
		return pick(g, []string{"production", "production", "production", "production", "kube-system", "pipeops", "none"})
	}
	return pick(g, []string{"web", "web", "api", "worker", "none"})
}

// values returns the values of a parameter: one, rarely none or several.
func (g *Generator) values(p Parameter) []string {
	one := func() string {
		if p.Name == "wait" {
			return pick(g, waits)
		}
		schema := g.doc.Resolved(p.Schema)
		if schema["type"] == "array" || g.oneIn(8) {
			return pick(g, words)
		}
		text, _ := json.Marshal(g.value(schema, 0)) //nolint:errchkjson // generated
		return strings.Trim(string(text), `"`)
	}
	if g.oneIn(20) {
		return []string{one(), one()}
	}
	return []string{one()}
}

// body returns the example with changes, or a body made from the schema.
func (g *Generator) body(r *Request) {
	media := "application/json"
	content, ok := r.Op.RequestBody.Content[media]
	if !ok {
		if g.oneIn(15) {
			r.Body, r.Header["Content-Type"] = []byte(`{}`), []string{media}
		}
		return
	}
	value := content.Example
	schema, _ := content.Schema.(map[string]any)
	if value == nil || !g.oneIn(3) {
		value = g.merged(runtime.DeepCopyJSONValue(value), g.doc.Resolved(schema))
	}
	r.Body, _ = json.Marshal(value) //nolint:errchkjson // generated
	switch g.rnd.IntN(14) {
	case 0:
		r.Body = []byte(pick(g, odd))
	case 1:
		r.Body = r.Body[:g.rnd.IntN(len(r.Body))]
	case 2, 3, 4:
		r.Body = g.replaced(r.Body)
	case 5:
		media = pick(g, []string{"text/plain", "application/json; charset=latin1", "", "application/yaml", ";"})
	}
	if r.Header["Content-Type"] = []string{media}; media == "" {
		r.Header.Del("Content-Type")
	}
}

// scalar matches values of fields in JSON.
var scalar = regexp.MustCompile(`:("[^"]*"|-?[0-9.]+|true|false)`)

// replaced replaces one value by another.
func (g *Generator) replaced(body []byte) []byte {
	all := scalar.FindAllIndex(body, -1)
	if len(all) == 0 {
		return body
	}
	found := pick(g, all)
	return slices.Concat(body[:found[0]+1], []byte(pick(g, odd)), body[found[1]:])
}

// outside are fields that would make the agent call another server, or wait.
var outside = []string{"url", "repository", "oci", "archive", "git", "chart", "timeoutSeconds"}

// merged adds some of a schema's properties.
func (g *Generator) merged(value any, schema map[string]any) any {
	object, ok := value.(map[string]any)
	if !ok {
		return g.value(schema, 0)
	}
	properties, _ := schema["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if g.oneIn(6) && !slices.Contains(outside, name) {
			object[name] = g.value(properties[name].(map[string]any), 1)
		}
	}
	if g.oneIn(20) {
		object["nothing"] = 1
	}
	return object
}

const deepest = 6

// value returns a value that usually fits a schema.
func (g *Generator) value(schema map[string]any, depth int) any {
	schema = g.doc.Resolved(schema)
	if enum, ok := schema["enum"].([]any); ok && !g.oneIn(10) {
		return pick(g, enum)
	}
	kind, _ := schema["type"].(string)
	switch kind {
	case "boolean":
		return g.oneIn(2)
	case "integer", "number":
		return g.number(schema)
	case "string":
		return g.text(schema)
	case "array":
		return g.list(schema, depth)
	case "object":
		return g.object(schema, depth)
	}
	return pick(g, []any{"a", 1, true, nil})
}

func (g *Generator) number(schema map[string]any) any {
	least, bounded := schema["minimum"].(float64)
	if g.oneIn(6) {
		return pick(g, []any{-1, 0, 1, 1.5, 1 << 31, 1e30})
	}
	if !bounded {
		return g.rnd.IntN(100)
	}
	return int(least) + g.rnd.IntN(3)
}

// text prefers what fits the pattern.
func (g *Generator) text(schema map[string]any) string {
	text, pattern := schema["pattern"].(string)
	if !pattern || g.oneIn(8) {
		return pick(g, words)
	}
	fits := regexp.MustCompile(text)
	for range 50 {
		if word := pick(g, words); fits.MatchString(word) {
			return word
		}
	}
	return pick(g, words)
}

func (g *Generator) list(schema map[string]any, depth int) any {
	out := []any{}
	items, _ := schema["items"].(map[string]any)
	for range g.rnd.IntN(3) {
		if depth < deepest {
			out = append(out, g.value(items, depth+1))
		}
	}
	return out
}

func (g *Generator) object(schema map[string]any, depth int) any {
	out := map[string]any{}
	properties, _ := schema["properties"].(map[string]any)
	required, _ := schema["required"].([]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		needed := slices.Contains(required, any(name)) && !g.oneIn(20)
		if depth < deepest && (needed || g.oneIn(4)) && !slices.Contains(outside, name) {
			out[name] = g.value(properties[name].(map[string]any), depth+1)
		}
	}
	if values, ok := schema["additionalProperties"].(map[string]any); ok && depth < deepest {
		for range g.rnd.IntN(3) {
			out[pick(g, words)] = g.value(values, depth+1)
		}
	}
	return out
}
