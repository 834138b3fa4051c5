package problem_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

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
