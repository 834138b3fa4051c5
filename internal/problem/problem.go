// Package problem is the one error format of all HTTP wires in this project: problem details (RFC
// 9457) with a stable code, the field at fault and a fix. It also owns huma's package-global error
// hooks, so that validation errors have the same format. Each wire defines its own codes.
package problem

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// ContentType is the media type of a problem (RFC 9457, section 3).
const ContentType = "application/problem+json"

// CorrectField is the fix for a field that is named.
const CorrectField = "correct the field"

// Code is the stable name of an error. Scripts may switch on it.
type Code string

// The codes that every wire has, by their HTTP status.
const (
	BadRequest      Code = "bad_request"       // 400
	Unauthorized    Code = "unauthorized"      // 401
	Forbidden       Code = "forbidden"         // 403
	NotFound        Code = "not_found"         // 404
	NotAllowed      Code = "not_allowed"       // 405
	Conflict        Code = "conflict"          // 409
	Busy            Code = "busy"              // 409; the same request succeeds later
	TooLarge        Code = "too_large"         // 413
	MediaType       Code = "media_type"        // 415
	Invalid         Code = "invalid"           // 422
	TooManyRequests Code = "too_many_requests" // 429
	Internal        Code = "internal"          // 500
	Unavailable     Code = "unavailable"       // 503
	Timeout         Code = "timeout"           // 504
)

var statusOf = map[Code]int{
	BadRequest: http.StatusBadRequest, Unauthorized: http.StatusUnauthorized,
	Forbidden: http.StatusForbidden, NotFound: http.StatusNotFound,
	NotAllowed: http.StatusMethodNotAllowed, Conflict: http.StatusConflict, Busy: http.StatusConflict,
	TooLarge: http.StatusRequestEntityTooLarge, MediaType: http.StatusUnsupportedMediaType,
	Invalid: http.StatusUnprocessableEntity, TooManyRequests: http.StatusTooManyRequests,
	Internal: http.StatusInternalServerError, Unavailable: http.StatusServiceUnavailable,
	Timeout: http.StatusGatewayTimeout,
}

// CodeOf returns the code for a status that came without one.
func CodeOf(status int) Code {
	for code, s := range statusOf {
		if s == status && code != Busy { // a 409 without a code may last
			return code
		}
	}
	switch {
	case status == http.StatusRequestTimeout || status == http.StatusBadGateway:
		return Unavailable
	case status >= 400 && status < 500:
		return BadRequest
	}
	return Internal
}

// Error is a problem. The client of a wire rebuilds the value that the server returned.
type Error struct {
	Title      string        `json:"title" doc:"The status in words."`
	Status     int           `json:"status" doc:"HTTP status."`
	Code       Code          `json:"code" doc:"Stable name of the error."`
	Detail     string        `json:"detail" doc:"What is wrong. Never holds a secret."`
	Field      string        `json:"field,omitempty" pattern:"^[A-Za-z0-9_$~*%/-]+(\\.[A-Za-z0-9_$~*%/-]*|\\[[0-9]+\\])*$" doc:"The field at fault: its path in the body; path.NAME, query.NAME or header.NAME for a parameter; body, path or query for the whole of it. Other characters of keys and names are percent-encoded."`
	Location   string        `json:"location,omitempty" doc:"Where the field stands, if the body is more than one document or becomes objects of a chart. The detail begins with it."`
	Fix        string        `json:"fix,omitempty" doc:"What to do next."`
	Fields     []FieldError  `json:"errors,omitempty" doc:"All fields at fault, when there are several."`
	RequestID  string        `json:"requestId,omitempty" doc:"The call, for finding it in the log."`
	RetryAfter time.Duration `json:"-"`
}

// Errorf returns an Error with one of the codes that every wire has.
func Errorf(code Code, fix, format string, args ...any) *Error {
	status, ok := statusOf[code]
	if !ok {
		status = http.StatusInternalServerError
	}
	return New(status, code, fix, format, args...)
}

// New returns an Error with a code of the wire's own.
func New(status int, code Code, fix, format string, args ...any) *Error {
	e := &Error{
		Title: http.StatusText(status), Status: status, Code: code,
		Fix: fix, Detail: fmt.Sprintf(format, args...),
	}
	if code == Busy {
		e.RetryAfter = time.Second
	}
	return e
}

// Is reports whether err is a problem with this code.
func Is(err error, code Code) bool {
	p, ok := errors.AsType[*Error](err)
	return ok && p.Code == code
}

// Source is an error that is not an Error, and has one for the callers of a wire.
type Source interface {
	error
	Problem() *Error
}

// Of returns the Error in err, or that of a Source in it.
func Of(err error) (*Error, bool) {
	if e, ok := errors.AsType[*Error](err); ok {
		return e, true
	}
	if s, ok := errors.AsType[Source](err); ok {
		return s.Problem(), true
	}
	return nil, false
}

// WithRetryAfter sets the delay after which a retry makes sense.
func (e *Error) WithRetryAfter(d time.Duration) *Error { e.RetryAfter = d; return e }

// Error returns the problem on one line: location or field, detail, fix.
func (e *Error) Error() string {
	s := placed(cmp.Or(e.Location, e.Field), e.Detail)
	if e.Fix != "" {
		s += " (fix: " + e.Fix + ")"
	}
	return s
}

// Passing reports whether the same request may succeed later without any change.
func (e *Error) Passing() bool {
	if e.Code == Busy {
		return true
	}
	switch e.Status {
	case http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// GetStatus makes Error a huma.StatusError.
func (e *Error) GetStatus() int { return e.Status }

// GetHeaders makes Error a huma.HeadersError.
func (e *Error) GetHeaders() http.Header {
	h := http.Header{}
	if e.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int((e.RetryAfter+time.Second-1)/time.Second)))
	}
	return h
}

// ContentType makes Error a huma.ContentTypeFilter.
func (e *Error) ContentType(string) string { return ContentType }
