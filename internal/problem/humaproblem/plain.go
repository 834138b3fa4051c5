package humaproblem

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// Plain is a middleware that refuses a request that two readers could interpret differently. huma
// takes the first value of a repeated parameter, and no value for an absent one.
func Plain(ctx huma.Context, next func(huma.Context)) {
	r, w := humachi.Unwrap(ctx)
	err := plainQuery(r, ctx.Operation().Parameters)
	if err == nil {
		err = plainHeader(r, ctx.Operation().Parameters)
	}
	if err != nil {
		problem.Write(w, problem.RequestID(r.Context()), err)
		return
	}
	next(ctx)
}

// plainQuery also rewrites the query: huma and net/url parse an unusual one differently.
func plainQuery(r *http.Request, params []*huma.Param) *problem.Error {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return problem.Errorf(problem.BadRequest, "percent-encode names and values, and separate parameters with &",
			"the query cannot be decoded: %v", err).WithField("query")
	}
	if !utf8.ValidString(r.URL.Path) {
		return NotUTF8("path")
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		field := "query." + name
		if !utf8.ValidString(name) || !utf8.ValidString(strings.Join(query[name], "")) {
			return NotUTF8("query." + strings.ToValidUTF8(printable.Clip(name), "�"))
		}
		schema := schemaOf(params, "query", name)
		if schema == nil || schema.Type == huma.TypeArray {
			continue // huma refuses those that it does not know
		}
		if e := single(query[name], field); e != nil {
			return e
		}
		if v := query[name][0]; schema.Type == huma.TypeBoolean && v != "true" && v != "false" {
			return problem.Errorf(problem.Invalid, "send true or false", "%s is not a boolean", name).WithField(field)
		}
	}
	r.URL.RawQuery = query.Encode()
	return nil
}

func plainHeader(r *http.Request, params []*huma.Param) *problem.Error {
	for _, p := range params {
		values := r.Header.Values(p.Name)
		if p.In != "header" || len(values) == 0 {
			continue
		}
		if e := single(values, "header."+p.Name); e != nil {
			return e
		}
		if !utf8.ValidString(values[0]) {
			return NotUTF8("header." + p.Name)
		}
	}
	return nil
}

// single refuses a parameter that is repeated or empty.
func single(values []string, field string) *problem.Error {
	_, name, _ := strings.Cut(field, ".")
	switch {
	case len(values) > 1:
		return problem.Errorf(problem.Invalid, "send it once", "%s is given %d times", printable.Clip(name), len(values)).WithField(field)
	case values[0] == "":
		return problem.Errorf(problem.Invalid, "give it a value, or leave it out", "%s has no value", printable.Clip(name)).WithField(field)
	}
	return nil
}

// NotUTF8 returns the problem of a field that is not UTF-8.
func NotUTF8(field string) *problem.Error {
	return problem.Errorf(problem.BadRequest, "send UTF-8", "the text is not UTF-8").WithField(field)
}

func schemaOf(params []*huma.Param, in, name string) *huma.Schema {
	for _, p := range params {
		if p.In == in && p.Name == name {
			return p.Schema
		}
	}
	return nil
}
