package server

import (
	"fmt"
	"net/http"
	"reflect"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/request"
)

// Keys of an operation's Metadata.
const (
	bodyLimitOf = "bodyLimit" // bytes
	goesOn      = "goesOn"    // its answer may be 202
)

// headers are the headers of answers, by their name in the document's components.
var headers = map[string]string{
	"Request-Id":              "The call, for finding it in the agent's log: the caller's own where it sent a sound one (up to 64 letters, digits, '.', '_', '-').",
	request.OperationIDHeader: "The operation that the write is: GET /v1/operations/{id} says what became of it. A dry run is none.",
	runnerapi.RecordingHeader: "The recording of the session, which the owner of the cluster can read.",
	"Location":                "Path of the operation.",
	"Retry-After":             "Seconds after which the same call is worth sending again.",
}

// finishDocument adds what middlewares answer, of which huma knows nothing.
func finishDocument(doc *huma.OpenAPI) {
	doc.Components.Headers = map[string]*huma.Header{}
	for name, text := range headers {
		schema := &huma.Schema{Type: huma.TypeString}
		if name == "Retry-After" {
			least := 1.0
			schema = &huma.Schema{Type: huma.TypeInteger, Minimum: &least}
		}
		doc.Components.Headers[name] = &huma.Header{Description: text, Schema: schema}
	}
	for _, c := range runnerapi.Calls() {
		op := operationAt(doc, c.Method, c.Path)
		if op == nil || op.OperationID == runnerapi.KubernetesCall {
			continue
		}
		finishBody(doc, op)
		finishAnswers(op)
	}
}

// finishBody documents the bound of the body, and what is answered because of a body.
func finishBody(doc *huma.OpenAPI, op *huma.Operation) {
	limit, _ := op.Metadata[bodyLimitOf].(int64)
	if limit == 0 || op.RequestBody == nil {
		return
	}
	op.RequestBody.Description = fmt.Sprintf("UTF-8, at most %d bytes, which have %d s to arrive.", limit, int(request.BodyTimeout.Seconds()))
	op.RequestBody.Extensions = map[string]any{"x-maxBytes": limit}
	for _, status := range []int{http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType} {
		refuses(doc, op, status)
	}
}

func refuses(doc *huma.OpenAPI, op *huma.Operation, status int) {
	schema := doc.Components.Schemas.Schema(reflect.TypeFor[runnerapi.Error](), true, "Error")
	op.Responses[strconv.Itoa(status)] = &huma.Response{
		Description: http.StatusText(status), Content: map[string]*huma.MediaType{problem.ContentType: {Schema: schema}},
	}
}

func finishAnswers(op *huma.Operation) {
	if op.Metadata[goesOn] != nil && op.Responses["202"] == nil {
		op.Responses["202"] = &huma.Response{Description: "Accepted; it continues.", Content: op.Responses["200"].Content}
	}
	if op.Method == http.MethodDelete && op.Responses["204"] == nil {
		op.Responses["204"] = &huma.Response{Description: "Deleted by an earlier sending of the same command, whose answer was lost."}
	}
	for status, answer := range op.Responses {
		names := []string{"Request-Id"}
		switch {
		case status[0] == '2' && op.Method != http.MethodGet:
			names = append(names, request.OperationIDHeader, "Location")
		case status == "409" || status == "429" || status == "503":
			names = append(names, "Retry-After")
		}
		if answer.Headers == nil {
			answer.Headers = map[string]*huma.Header{}
		}
		for _, name := range names {
			answer.Headers[name] = &huma.Header{Ref: "#/components/headers/" + name}
		}
	}
}

// alsoRefuses returns an operation with errors that others do not have.
func alsoRefuses(op huma.Operation, statuses ...int) huma.Operation {
	op.Errors = append(append([]int{}, op.Errors...), statuses...)
	return op
}

// mayGoOn returns an operation that answers 202 while its work continues.
func mayGoOn(op huma.Operation) huma.Operation {
	op.Metadata[goesOn] = true
	return op
}
