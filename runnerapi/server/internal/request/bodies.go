package request

import (
	"bytes"
	"io"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// Bodies bounds the large bodies of each Runner.
type Bodies struct{ shares *limit.Shares }

// NewBodies allows so many large bodies at a time, in total and per Runner.
func NewBodies(total, perRunner int) *Bodies { return &Bodies{limit.NewShares(total, perRunner)} }

// Bound is a middleware that bounds the calls with bodies that may be large, from
// before they are read until they are answered.
func (b *Bodies) Bound(ctx huma.Context, next func(huma.Context)) {
	r, w := humachi.Unwrap(ctx)
	if 0 <= r.ContentLength && r.ContentLength <= MaxSmallBody {
		next(ctx)
		return
	}
	leave, ok := b.shares.Enter(Caller(r.Context()).Runner)
	if !ok {
		problem.Write(w, problem.RequestID(r.Context()), Busy("too many large bodies of this Runner's are in progress"))
		return
	}
	defer leave()
	next(ctx)
}

// Hold reads the request's body of at most so many bytes, with the limits of all calls.
func (b *Bodies) Hold(w http.ResponseWriter, r *http.Request, runner string, most int64) (done func(), err error) {
	if r.Body == nil || r.ContentLength == 0 {
		return func() {}, nil
	}
	leave := func() {}
	if r.ContentLength < 0 || r.ContentLength > MaxSmallBody {
		var ok bool
		if leave, ok = b.shares.Enter(runner); !ok {
			return nil, Busy("too many large bodies of this Runner's are in progress")
		}
	}
	body, err := ReadBody(w, r, most)
	if err != nil {
		leave()
		return nil, err
	}
	r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	return leave, nil
}
