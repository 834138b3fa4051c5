package problem_test

import (
	"reflect"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

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
