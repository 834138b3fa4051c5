package problem

import (
	"errors"
	"slices"
	"strings"
)

// MaxTold bounds the refusals that one answer lists.
const MaxTold = 20

// Together returns one error for several refusals; nil for none. The first that does not pass by
// itself stands for all, and the fields list each. If one is not an *Error, Together joins them as
// they are.
func Together(refused []error) error {
	problems := make([]*Error, 0, len(refused))
	for _, err := range refused {
		p := &Error{}
		if !errors.As(err, &p) {
			return errors.Join(refused...)
		}
		problems = append(problems, p)
	}
	switch len(problems) {
	case 0:
		return nil
	case 1:
		return problems[0]
	}
	lasts := slices.IndexFunc(problems, func(p *Error) bool { return !p.Passing() })
	all := *problems[max(lasts, 0)]
	all.Fields = nil
	for _, p := range problems {
		all.Fields = append(all.Fields, p.asFields()...)
	}
	all.Fields = all.Fields[:min(len(all.Fields), MaxTold)]
	return &all
}

// asFields returns one field error for each place that the error is about. Fields without a place
// of their own, or within the error's, belong to one object and become one.
func (e *Error) asFields() []FieldError {
	within := func(f FieldError) bool {
		return f.Location == "" || e.Location != "" && strings.HasPrefix(f.Location, e.Location+": ")
	}
	if len(e.Fields) > 1 && !slices.ContainsFunc(e.Fields, within) {
		return e.Fields
	}
	return []FieldError{e.AsField()}
}
