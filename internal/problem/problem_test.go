package problem_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
		e := problem.Parse(status, contentType, body)
		require.True(t, e.Code != "" && e.Status == status, "%+v", e)
	})
}

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

func TestTogether(t *testing.T) {
	at := func(place string) *problem.Error {
		return problem.Errorf(problem.Invalid, "correct it", "wrong").WithField("spec.a").WithLocation(place)
	}
	require.NoError(t, problem.Together(nil))
	one := at("document 1")
	one.Fields = []problem.FieldError{{Field: "spec.a", Message: "a"}, {Field: "spec.b", Message: "b"}}
	assert.Same(t, one, problem.Together([]error{one}), "one keeps its own fields")

	two := problem.Errorf(problem.Forbidden, "ask", "two are refused")
	two.Fields = []problem.FieldError{{Field: "body", Location: "document 2", Message: "c"}, {Field: "body", Location: "document 3", Message: "d"}}
	passing := problem.Errorf(problem.Unavailable, "try again", "not now")
	all := &problem.Error{}
	require.ErrorAs(t, problem.Together([]error{passing, one, fmt.Errorf("the policy: %w", two)}), &all)
	assert.Equal(t, problem.Invalid, all.Code, "a retry would not help")
	assert.Equal(t, one.Detail, all.Detail)
	assert.Equal(t, []problem.FieldError{{Field: "body", Message: "not now"}, one.AsField(), two.Fields[0], two.Fields[1]}, all.Fields)
	assert.Len(t, one.Fields, 2, "what was given is not changed")

	object := at("Service b")
	object.Fields = []problem.FieldError{{Field: "chart", Location: "Service b: spec.a", Message: "a"}, {Field: "chart", Location: "Service b: spec.b", Message: "b"}}
	require.ErrorAs(t, problem.Together([]error{object, two}), &all)
	assert.Equal(t, []problem.FieldError{object.AsField(), two.Fields[0], two.Fields[1]}, all.Fields, "an object is one line")

	var many []error
	for range problem.MaxTold + 1 {
		many = append(many, at("here"))
	}
	require.ErrorAs(t, problem.Together(many), &all)
	assert.Len(t, all.Fields, problem.MaxTold)

	strange := errors.New("strange")
	err := problem.Together([]error{one, strange})
	require.ErrorIs(t, err, strange)
	require.ErrorIs(t, err, one)
}

// fieldForm is the pattern that the documents say.
func fieldForm(of any) *regexp.Regexp {
	field, _ := reflect.TypeOf(of).FieldByName("Field")
	return regexp.MustCompile(field.Tag.Get("pattern"))
}

func TestField(t *testing.T) {
	for given, want := range map[string]string{
		"ports[0].port":                    "ports[0].port",
		"body":                             "body",
		"query.dryRun":                     "query.dryRun",
		"header.Idempotency-Key":           "header.Idempotency-Key",
		"labels.app.kubernetes.io/name":    "labels.app.kubernetes.io/name",
		"data[tls.crt]":                    "data.tls.crt",
		"data[a b]":                        "data.a%20b",
		"env.a b[1]":                       "env.a%20b[1]",
		"query.é":                          "query.%C3%A9",
		"query.":                           "query",
		"args.\xff":                        "args.%FF",
		"env.a\nb[1]":                      "env.a%0Ab[1]",
		"document 2, line 6":               "document%202%2C%20line%206",
		"spec.template.spec.containers[0]": "spec.template.spec.containers[0]",
		"[0]":                              "body[0]",
		"a[1":                              "a%5B1",
		"x[0][1].y":                        "x[0][1].y",
	} {
		got := problem.Errorf(problem.Invalid, "", "").WithField(given).Field
		assert.Regexp(t, fieldForm(problem.Error{}), got, given)
		assert.Equal(t, want, got, given)
	}
	assert.Equal(t, fieldForm(problem.Error{}), fieldForm(problem.FieldError{}))
}

func FuzzField(f *testing.F) {
	for _, seed := range []string{"a.b[0]", "[", "]", "..", "a[b", "a[b]c]", "é", "%", "\n", "[.]"} {
		f.Add(seed)
	}
	form := fieldForm(problem.Error{})
	f.Fuzz(func(t *testing.T, path string) {
		if got := problem.Field(path); got != "" && !form.MatchString(got) {
			t.Errorf("%q became %q", path, got)
		} else if again := problem.Field(got); again != got {
			t.Errorf("%q became %q, and that %q", path, got, again)
		}
	})
}

func TestLocation_BeginsDetail(t *testing.T) {
	e := problem.Errorf(problem.Invalid, "correct it", "port is missing").WithField("spec.port").WithLocation("document 2, line 6")
	assert.Equal(t, "document 2, line 6: port is missing", e.WithLocation("document 2, line 6").Detail)
	assert.Equal(t, "document 2, line 6: port is missing (fix: correct it)", e.Error())
	assert.Equal(t, problem.FieldError{Field: "spec.port", Location: "document 2, line 6", Message: e.Detail}, e.AsField())
	assert.Equal(t, e.Detail, e.AsField().String())
	assert.Equal(t, "a: b", problem.FieldError{Field: "a", Message: "b"}.String())
}
