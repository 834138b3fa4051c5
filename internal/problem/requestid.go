package problem

import (
	"context"
	"net/http"

	"github.com/google/uuid"
)

// RequestIDHeader names a call in both parties' logs.
const RequestIDHeader = "Request-Id"

// maxRequestID bounds a Request-Id that the caller chose.
const maxRequestID = 64

type requestIDKey struct{}

// RequestID returns the Request-Id of the call that ctx belongs to, or empty.
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// WithRequestID is a middleware that gives every call a Request-Id and returns it in the answer. It
// uses the caller's own Request-Id if that is valid.
func WithRequestID(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if RequestID(r.Context()) != "" { // it has one
			next.ServeHTTP(w, r)
			return
		}
		id := r.Header.Get(RequestIDHeader)
		if !soundRequestID(id) {
			id = uuid.NewString()
		}
		w.Header().Set(RequestIDHeader, id)
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), requestIDKey{}, id)))
	})
}

// soundRequestID keeps what could forge a log line or blow one up out of it.
func soundRequestID(id string) bool {
	if id == "" || len(id) > maxRequestID {
		return false
	}
	for _, c := range id {
		if c != '-' && c != '_' && c != '.' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return true
}
