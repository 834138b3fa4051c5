package server

import (
	"encoding/json"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// codeSample is one entry of x-codeSamples, which documentation tools show
// beside a call.
type codeSample struct {
	Lang   string `json:"lang"`
	Label  string `json:"label"`
	Source string `json:"source"`
}

// addSamples puts the examples into the OpenAPI document.
func addSamples(doc *huma.OpenAPI) {
	for _, c := range runnerapi.Calls() {
		op := operationAt(doc, c.Method, c.Path)
		if op == nil {
			continue // not part of the document: the health calls, and the document itself
		}
		samples := []codeSample{{Lang: "Shell", Label: "pipeops-runner", Source: c.Example}}
		if !c.Upgrades() {
			samples = append(samples, codeSample{Lang: "Shell", Label: "curl", Source: c.Curl()})
		}
		op.Extensions = map[string]any{"x-codeSamples": samples}
		if c.Body != "" && op.RequestBody != nil {
			op.RequestBody.Content["application/json"].Example = json.RawMessage(c.Body)
		}
	}
}

func operationAt(doc *huma.OpenAPI, method, path string) *huma.Operation {
	item := doc.Paths[path]
	if item == nil {
		return nil
	}
	return map[string]*huma.Operation{
		http.MethodGet: item.Get, http.MethodPut: item.Put, http.MethodPost: item.Post, http.MethodDelete: item.Delete,
	}[method]
}
