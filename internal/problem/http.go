package problem

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"strconv"
	"time"
)

// maxBody bounds what Read reads of an answer: a problem is small.
const maxBody = 64 << 10

// Write answers a request with err. An error that has no Error becomes a 500 without detail,
// because its text may be confidential.
func Write(w http.ResponseWriter, requestID string, err error) {
	e, ok := Of(err)
	if !ok {
		e = Unexpected()
	}
	answer := *e
	answer.RequestID = cmp.Or(answer.RequestID, requestID)
	maps.Copy(w.Header(), answer.GetHeaders())
	w.Header().Set("Content-Type", ContentType)
	w.WriteHeader(answer.Status)
	_ = json.NewEncoder(w).Encode(answer) // the peer is gone if this fails
}

// Read returns the Error in an answer that is not a success. It reads the body up to a limit and
// leaves closing it to the caller.
func Read(resp *http.Response) *Error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		body = nil
	}
	e := Parse(resp.StatusCode, resp.Header.Get("Content-Type"), body)
	if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && s > 0 {
		e.RetryAfter = time.Duration(s) * time.Second
	}
	return e
}

// Parse returns the Error in an answer's status, content type and body. An answer that is not a
// problem (a proxy's page, for example) still gives a useful Error.
func Parse(status int, contentType string, body []byte) *Error {
	e := &Error{}
	media, _, _ := mime.ParseMediaType(contentType)
	if media != ContentType || json.Unmarshal(body, e) != nil || e.Code == "" {
		e = &Error{
			Code: CodeOf(status), Detail: fmt.Sprintf("the server answered %d %s, without details", status, http.StatusText(status)),
			Fix: "check the server's URL and the proxies on the way",
		}
	}
	e.Status, e.Title = status, http.StatusText(status)
	return e
}

// Unexpected returns the Error for what must not be shown to a caller.
func Unexpected() *Error {
	return Errorf(Internal, "look for the request ID in the server's log", "an unexpected error occurred")
}
