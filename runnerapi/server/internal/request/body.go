package request

import (
	"errors"
	"io"
	"math"
	"net/http"
	"os"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/decode"
	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// MaxSmallBody is the limit for the body of most calls, in bytes.
const MaxSmallBody = 64 << 10

// BodyTimeout is for a body to arrive.
const BodyTimeout = 30 * time.Second

// Decoder bounds the memory that the decoded values of a body take. Each call bounds its bytes
// itself.
var Decoder = decode.LimitsFor(math.MaxInt32)

// BodyDeadline is a middleware that bounds how long a body may take to arrive, until ReadBody has
// read all of it. It also holds for a body that is refused unread: on HTTP/1, net/http reads the
// rest before it sends the answer, unless the connection is about to close.
func BodyDeadline(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(BodyTimeout)) // only a test's recorder cannot
			if r.ProtoMajor == 1 {
				w.Header().Set("Connection", "close")
			}
		}
		next.ServeHTTP(w, r)
	})
}

// bodyArrived clears the deadline of BodyDeadline, which on HTTP/1 would end a call that waits.
func bodyArrived(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // as above
	w.Header().Del("Connection")
}

// ReadBody returns a body of at most so many bytes, and an error that says what is wrong with it.
func ReadBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
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
			"send it again over a better connection", "the body did not arrive whole within %s", BodyTimeout)
	}
	return nil, problem.Errorf(problem.BadRequest, "send the body whole, framed as HTTP says", "the body cannot be read: %s", printable.Clip(err.Error())).WithField("body")
}

func tooLarge(limit int64) *runnerapi.Error {
	return problem.Errorf(problem.TooLarge, "send less in one request", "the body has more than the %d bytes that this call takes", limit)
}
