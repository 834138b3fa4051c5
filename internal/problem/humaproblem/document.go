package humaproblem

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
)

// Document returns an OpenAPI document as JSON, with the servers that it describes. It adds the
// responses that package httpserver sends before a call is chosen.
func Document(doc *huma.OpenAPI, servers ...*huma.Server) ([]byte, error) {
	out, components := *doc, *doc.Components
	components.Schemas = registry{doc.Components.Schemas}
	out.Servers, out.Components = servers, &components
	for _, item := range doc.Paths {
		for _, op := range []*huma.Operation{item.Get, item.Put, item.Post, item.Delete, item.Patch} {
			if op != nil {
				refusedEarly(op)
			}
		}
	}
	text, err := json.MarshalIndent(&out, "", "  ")
	return append(text, '\n'), err
}

// ControlPlane is the server of the documents of a control plane's calls.
func ControlPlane() *huma.Server {
	return &huma.Server{
		URL: "https://{address}", Description: "A control plane's HTTPS API.",
		Variables: map[string]*huma.ServerVariable{"address": {
			Default: "controlplane.example.com:8443", Description: "Host and port of the URL in the field controlPlane of the credentials.",
		}},
	}
}

// refusedEarly documents the statuses of requests with an Expect other than 100-continue, and with
// a large header. Their responses have the form of those for malformed requests.
func refusedEarly(op *huma.Operation) {
	malformed := op.Responses[strconv.Itoa(http.StatusBadRequest)]
	if malformed == nil {
		return
	}
	for _, status := range []int{http.StatusExpectationFailed, http.StatusRequestHeaderFieldsTooLarge} {
		response := *malformed
		response.Description = http.StatusText(status)
		op.Responses[strconv.Itoa(status)] = &response
	}
}

// registry writes schemas for generators of clients. For many of them, a property with a default
// is one that a sender has to set; so the description has the default.
type registry struct{ huma.Registry }

// MarshalJSON implements json.Marshaler.
func (r registry) MarshalJSON() ([]byte, error) {
	schemas := maps.Clone(r.Map())
	for name, schema := range schemas {
		plain := *schema
		plain.Properties = maps.Clone(schema.Properties)
		for key, property := range plain.Properties {
			if property.Default != nil {
				plain.Properties[key] = defaultInWords(property)
			}
		}
		schemas[name] = &plain
	}
	return json.Marshal(schemas)
}

func defaultInWords(property *huma.Schema) *huma.Schema {
	plain := *property
	plain.Default = nil
	if plain.Description != "" {
		plain.Description += " "
	}
	plain.Description += fmt.Sprintf("The default is %v.", property.Default)
	return &plain
}
