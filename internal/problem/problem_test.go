package problem_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

func roundTrip(t *testing.T, err error) *problem.Error {
	t.Helper()
	rec := httptest.NewRecorder()
	problem.Write(rec, "req-1", err)
	resp := rec.Result()
	defer func() { _ = resp.Body.Close() }()
	assert.Equal(t, problem.ContentType, resp.Header.Get("Content-Type"))
	return problem.Read(resp)
}

func TestWrite_RoundTrip(t *testing.T) {
	sent := problem.Errorf(problem.Conflict, "choose another name", "name %q is taken", "shop").
		WithField("name").WithRetryAfter(1500 * time.Millisecond)
	got := roundTrip(t, sent)
	want := *sent
	want.RequestID, want.RetryAfter = "req-1", 2*time.Second
	assert.Equal(t, &want, got)
	assert.Equal(t, `name: name "shop" is taken (fix: choose another name)`, got.Error())
}

func TestWrite_HidesOtherErrors(t *testing.T) {
	got := roundTrip(t, errors.New("password=hunter2"))
	assert.Equal(t, http.StatusInternalServerError, got.Status)
	assert.NotContains(t, got.Detail, "hunter2")
}

func TestParse_ProxyPage(t *testing.T) {
	e := problem.Parse(http.StatusBadGateway, "text/html", []byte("<html>"))
	assert.Equal(t, problem.Unavailable, e.Code)
	assert.True(t, e.Passing())
}

func TestRequestID_RefusesInvalid(t *testing.T) {
	for given, kept := range map[string]bool{"abc-1.2_Z": true, "": false, "a\nb": false, string(make([]byte, 65)): false} {
		var seen string
		h := problem.WithRequestID(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = problem.RequestID(r.Context()) }))
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header[problem.RequestIDHeader] = []string{given}
		h.ServeHTTP(httptest.NewRecorder(), r)
		assert.Equal(t, kept, seen == given, "%q", given)
		assert.NotEmpty(t, seen)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(409, problem.ContentType, []byte(`{"code":"conflict","detail":"taken"}`))
	f.Add(502, "text/html", []byte("<html>"))
	f.Fuzz(func(t *testing.T, status int, contentType string, body []byte) {
		if e := problem.Parse(status, contentType, body); e.Code == "" || e.Status != status {
			t.Fatalf("%+v", e)
		}
	})
}
