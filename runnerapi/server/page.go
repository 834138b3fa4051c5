package server

import (
	"cmp"
	"encoding/base64"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/params"
)

// keyOf joins the parts of a key, so that keys order as their parts do.
func keyOf(parts ...string) string { return strings.Join(parts, "\x00") }

// paged returns the part of a list that a caller asks for, ordered by keys, which are unique. The
// token is the last key: it needs no memory, and an object that comes or goes shifts no other. An
// error of the list is returned as it is.
func paged[T any](in params.Page, items []T, err error, key func(T) string) ([]T, runnerapi.Page, error) {
	if err != nil || in.Limit == 0 && in.Continue == "" {
		return notNil(items), runnerapi.Page{}, err
	}
	last, err := base64.RawURLEncoding.DecodeString(in.Continue)
	if err != nil {
		return []T{}, runnerapi.Page{}, problem.Errorf(problem.Invalid, "send the token of the part before, or leave it out to begin again",
			"continue is not a token of this list").WithField("query.continue")
	}
	items = slices.DeleteFunc(slices.Clone(items), func(item T) bool { return in.Continue != "" && key(item) <= string(last) })
	slices.SortFunc(items, func(a, b T) int { return cmp.Compare(key(a), key(b)) })
	if in.Limit == 0 || len(items) <= in.Limit {
		return notNil(items), runnerapi.Page{}, nil
	}
	items = items[:in.Limit]
	return items, runnerapi.Page{Continue: base64.RawURLEncoding.EncodeToString([]byte(key(items[in.Limit-1])))}, nil
}

// selected returns the items whose labels match a selector, as kubectl's -l takes it.
func selected[T any](selector string, items []T, of func(T) map[string]string) ([]T, error) {
	if selector == "" {
		return items, nil
	}
	matches, err := labels.Parse(selector)
	if err != nil {
		return nil, problem.Errorf(problem.Invalid, "write it as kubectl takes it, such as env=prod,tier!=db", "labelSelector is not a selector: %v", err).
			WithField("query.labelSelector")
	}
	return slices.DeleteFunc(slices.Clone(items), func(item T) bool { return !matches.Matches(labels.Set(of(item))) }), nil
}
