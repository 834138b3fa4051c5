// Package decode reads bodies strictly: a request that two readers could interpret
// differently is refused.
package decode

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	kjson "sigs.k8s.io/json"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/problem/humaproblem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/audit"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/request"
)

// JSON decodes strictly. Otherwise a field in the wrong case, or given twice, could pass the
// schema with one value and arrive with another.
var JSON = huma.Format{
	Marshal:   huma.DefaultJSONFormat.Marshal,
	Unmarshal: Decode,
}

// null stands for a null while huma validates, which would treat it as an absent field.
type null struct{}

// Decode decodes a body into an any for huma to validate, and then into its type.
func Decode(data []byte, v any) error {
	if err := soundText(data); err != nil {
		return err
	}
	if err := request.Decoder.CheckJSON(data); err != nil {
		return err
	}
	strict, err := kjson.UnmarshalStrict(wholeNumbers(data), v)
	if err != nil {
		if syntax, offset := kjson.SyntaxErrorOffset(err); syntax {
			line, column := position(data, offset)
			return fmt.Errorf("not JSON at line %d, column %d: %w", line, column, err)
		}
		return err
	}
	if tree, ok := v.(*any); ok {
		*tree = withNulls(*tree)
	}
	return errors.Join(strict...)
}

func withNulls(v any) any {
	switch v := v.(type) {
	case nil:
		return null{}
	case map[string]any:
		for key := range v {
			v[key] = withNulls(v[key])
		}
	case []any:
		for i := range v {
			v[i] = withNulls(v[i])
		}
	}
	return v
}

// position converts an offset to the line and column that an editor shows.
func position(data []byte, offset int64) (line, column int) {
	before := data[:min(max(offset, 0), int64(len(data)))]
	return bytes.Count(before, []byte("\n")) + 1, len(before) - bytes.LastIndexByte(before, '\n') - 1
}

// WithBody is a middleware that reads the body ahead of huma. huma knows neither the content types
// nor the body's own limit before it has read everything.
func WithBody(limit int64) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		r, w := humachi.Unwrap(ctx)
		body, err := takeBody(w, r, limit, ctx.Operation().RequestBody)
		if err != nil {
			problem.Write(w, problem.RequestID(r.Context()), err)
			return
		}
		audit.NoteBody(r.Context(), body)
		r.Body = &ReadAhead{Reader: bytes.NewReader(body), All: body}
		next(ctx)
	}
}

// takeBody refuses what the header alone shows to be wrong.
func takeBody(w http.ResponseWriter, r *http.Request, limit int64, of *huma.RequestBody) ([]byte, error) {
	if r.ContentLength > 0 {
		if err := mediaOf(r, of); err != nil {
			return nil, err
		}
	}
	body, err := request.ReadBody(w, r, limit)
	if err != nil {
		return nil, err
	}
	if r.ContentLength < 0 && len(body) > 0 {
		if err := mediaOf(r, of); err != nil {
			return nil, err
		}
	}
	if !utf8.Valid(body) {
		return nil, humaproblem.NotUTF8("body")
	}
	return body, nil
}

// Bodyless is a middleware for calls that take no body: a body would go unread, so its sender made
// a mistake.
func Bodyless(ctx huma.Context, next func(huma.Context)) {
	r, w := humachi.Unwrap(ctx)
	_, err := request.ReadBody(w, r, 0)
	if problem.Is(err, runnerapi.CodeTooLarge) {
		err = problem.Errorf(problem.BadRequest, "send no body", "this call accepts no body").WithField("body")
	}
	if err != nil {
		problem.Write(w, problem.RequestID(r.Context()), err)
		return
	}
	next(ctx)
}

// ReadAhead is a body that is already in memory.
type ReadAhead struct {
	*bytes.Reader
	All []byte
}

// Close makes ReadAhead an io.ReadCloser.
func (*ReadAhead) Close() error { return nil }
