package runnerapi

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	kjson "sigs.k8s.io/json"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// jsonFormat decodes strictly: a field in the wrong case or given twice would
// otherwise pass the schema as one value and arrive as another.
var jsonFormat = huma.Format{
	Marshal:   huma.DefaultJSONFormat.Marshal,
	Unmarshal: decodeJSON,
}

func decodeJSON(data []byte, v any) error {
	strict, err := kjson.UnmarshalStrict(data, v)
	if err != nil {
		if syntax, offset := kjson.SyntaxErrorOffset(err); syntax {
			line, column := position(data, offset)
			return fmt.Errorf("not JSON at line %d, column %d: %w", line, column, err)
		}
		return err
	}
	return errors.Join(strict...)
}

// position turns an offset into what an editor shows.
func position(data []byte, offset int64) (line, column int) {
	before := data[:min(max(offset, 0), int64(len(data)))]
	return bytes.Count(before, []byte("\n")) + 1, len(before) - bytes.LastIndexByte(before, '\n') - 1
}

// bounded is a middleware that reads the body ahead of huma. huma would leave
// its read deadline on the connection, and on HTTP/1.1 that ends a call that
// waits longer.
func bounded(limit int64) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		r, w := humachi.Unwrap(ctx)
		body, err := readBody(w, r, limit)
		if err != nil {
			problem.Write(w, problem.RequestID(r.Context()), err)
			return
		}
		noteBody(r.Context(), body)
		r.Body = &readAhead{Reader: bytes.NewReader(body), all: body}
		next(ctx)
	}
}

// readAhead is a body that is in memory already.
type readAhead struct {
	*bytes.Reader
	all []byte
}

// Close makes readAhead an io.ReadCloser.
func (*readAhead) Close() error { return nil }

func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(bodyTimeout)) // only a test's recorder cannot
	defer func() { _ = rc.SetReadDeadline(time.Time{}) }()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var tooLarge *http.MaxBytesError
	switch {
	case err == nil:
		return body, nil
	case errors.As(err, &tooLarge):
		return nil, problem.Errorf(problem.TooLarge, "send less in one request",
			"the body has more than the %d bytes that this call takes", limit)
	}
	return nil, problem.New(http.StatusRequestTimeout, problem.Unavailable,
		"send it again over a better connection", "the body did not arrive whole within %s", bodyTimeout)
}
