package problem_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

func TestNoBody(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := problem.NoBody(w, r); err != nil {
			problem.Write(w, "", err)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	for name, c := range map[string]struct {
		body   io.Reader
		length int64
		status int
	}{
		"none":               {nil, 0, 204},
		"an announced one":   {iotest.ErrReader(io.ErrNoProgress), 20, 400}, // it is not read
		"a chunked one":      {strings.NewReader("{}"), -1, 400},
		"an empty one":       {strings.NewReader(""), -1, 204},
		"one that is broken": {iotest.ErrReader(io.ErrUnexpectedEOF), -1, 400},
		"one that stalls":    {iotest.ErrReader(os.ErrDeadlineExceeded), -1, 408},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", c.body)
		r.ContentLength = c.length
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		assert.Equal(t, c.status, w.Code, name)
		if c.status != http.StatusNoContent {
			assert.Equal(t, problem.ContentType, w.Header().Get("Content-Type"), name)
		}
	}
}
