package server

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	kjson "sigs.k8s.io/json"

	"github.com/pipeops/pipeops-vm-agent/internal/bounded"
	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// jsonFormat decodes strictly. Otherwise a field in the wrong case, or given twice, could pass the
// schema with one value and arrive with another.
var jsonFormat = huma.Format{
	Marshal:   huma.DefaultJSONFormat.Marshal,
	Unmarshal: decodeJSON,
}

// ofBodies bounds the memory that the decoded values of a body take. Each call bounds its bytes
// itself.
var ofBodies = bounded.Of(math.MaxInt32)

// null stands for a null while huma validates, which would treat it as an absent field.
type null struct{}

// decodeJSON decodes a body into an any for huma to validate, and then into its type.
func decodeJSON(data []byte, v any) error {
	if err := soundText(data); err != nil {
		return err
	}
	if err := ofBodies.CheckJSON(data); err != nil {
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

// withBody is a middleware that reads the body ahead of huma. huma knows neither the content types
// nor the body's own limit before it has read everything.
func withBody(limit int64) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		r, w := humachi.Unwrap(ctx)
		body, err := takeBody(w, r, limit, ctx.Operation().RequestBody)
		if err != nil {
			problem.Write(w, problem.RequestID(r.Context()), err)
			return
		}
		noteBody(r.Context(), body)
		r.Body = &readAhead{Reader: bytes.NewReader(body), all: body}
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
	body, err := readBody(w, r, limit)
	if err != nil {
		return nil, err
	}
	if r.ContentLength < 0 && len(body) > 0 {
		if err := mediaOf(r, of); err != nil {
			return nil, err
		}
	}
	if !utf8.Valid(body) {
		return nil, noUTF8("body")
	}
	return body, nil
}

// bodyless is a middleware for calls that take no body: a body would go unread, so its sender made
// a mistake.
func bodyless(ctx huma.Context, next func(huma.Context)) {
	r, w := humachi.Unwrap(ctx)
	_, err := readBody(w, r, 0)
	if known := (*runnerapi.Error)(nil); errors.As(err, &known) && known.Code == runnerapi.CodeTooLarge {
		err = problem.Errorf(problem.BadRequest, "send no body", "this call takes no body").WithField("body")
	}
	if err != nil {
		problem.Write(w, problem.RequestID(r.Context()), err)
		return
	}
	next(ctx)
}

// readAhead is a body that is already in memory.
type readAhead struct {
	*bytes.Reader
	all []byte
}

// Close makes readAhead an io.ReadCloser.
func (*readAhead) Close() error { return nil }

// bodyDeadline is a middleware that bounds how long a body may take to arrive, until readBody has
// read all of it. It also holds for a body that is refused unread: on HTTP/1, net/http reads the
// rest before it sends the answer, unless the connection is about to close.
func bodyDeadline(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout)) // only a test's recorder cannot
			if r.ProtoMajor == 1 {
				w.Header().Set("Connection", "close")
			}
		}
		next.ServeHTTP(w, r)
	})
}

// bodyArrived clears the deadline of bodyDeadline, which on HTTP/1 would end a call that waits.
func bodyArrived(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // as above
	w.Header().Del("Connection")
}

func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	if r.ContentLength == 0 {
		return nil, nil
	}
	if r.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var over *http.MaxBytesError
	switch {
	case err == nil:
		bodyArrived(w)
		return body, nil
	case errors.As(err, &over):
		return nil, tooLarge(limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, problem.New(http.StatusRequestTimeout, runnerapi.CodeRequestTimeout,
			"send it again over a better connection", "the body did not arrive whole within %s", bodyTimeout)
	}
	return nil, problem.Errorf(problem.BadRequest, "send the body whole, framed as HTTP says", "the body cannot be read: %s", printable.Clip(err.Error())).WithField("body")
}

func tooLarge(limit int64) *runnerapi.Error {
	return problem.Errorf(problem.TooLarge, "send less in one request", "the body has more than the %d bytes that this call takes", limit)
}
