// Package humaproblem makes huma answer with problems, and refuse ambiguous requests. A package
// that uses huma imports it for that effect. It writes the OpenAPI documents too.
package humaproblem

import (
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// huma keeps its error constructors in package variables; they are set once,
// here, for every wire.
func init() {
	huma.DefaultArrayNullable = false // Go's nil slices are left out
	huma.NewError = func(status int, msg string, errs ...error) huma.StatusError {
		return fromHuma(status, msg, errs)
	}
	huma.NewErrorWithContext = func(ctx huma.Context, status int, msg string, errs ...error) huma.StatusError {
		e := fromHuma(status, msg, errs)
		if ctx != nil {
			e.RequestID = problem.RequestID(ctx.Context())
		}
		return e
	}
}

// fromHuma turns what huma found into a problem. The values it quotes are left
// out: they may be secrets.
func fromHuma(status int, msg string, errs []error) *problem.Error {
	if status >= http.StatusInternalServerError {
		return problem.Unexpected()
	}
	e := problem.New(status, problem.CodeOf(status), fixFor(status), "%s", msg)
	for _, err := range errs {
		d, ok := err.(huma.ErrorDetailer)
		if !ok {
			continue
		}
		e.Fields = append(e.Fields, fieldError(d.ErrorDetail()))
	}
	if len(e.Fields) > 0 {
		e.Field, e.Detail = e.Fields[0].Field, e.Fields[0].Message
	}
	if len(e.Fields) == 1 {
		e.Fields = nil
	}
	return e
}

// fieldError names a missing property itself, where huma names the object that lacks it.
func fieldError(d *huma.ErrorDetail) problem.FieldError {
	at, message := d.Location, inWords(d.Message)
	if name, missing := strings.CutPrefix(d.Message, lacks); missing {
		name = strings.TrimSuffix(name, " to be present")
		at += "." + name
	}
	return problem.FieldError{Field: field(at), Message: message}
}

// lacks is huma's text for a missing property; its name follows.
const lacks = "expected required property "

// field returns the path of a field of the body as its sender wrote it, without huma's prefix. The
// others keep theirs: path, query, header.
func field(location string) string { return problem.Field(strings.TrimPrefix(location, "body.")) }

func fixFor(status int) string {
	switch status {
	case http.StatusUnprocessableEntity, http.StatusBadRequest:
		return problem.CorrectField
	case http.StatusRequestEntityTooLarge:
		return "send less in one request"
	case http.StatusUnsupportedMediaType:
		return "send Content-Type: application/json"
	}
	return ""
}
