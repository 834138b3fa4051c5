package runnerapi_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func TestSourceSpec_Semver(t *testing.T) {
	mistakes := func(ref runnerapi.GitRef) []runnerapi.FieldError {
		return runnerapi.SourceSpec{URL: "https://git.example.com/shop.git", Type: runnerapi.SourceManifests, Ref: ref}.Validate("web")
	}
	for _, good := range []string{">=1.2.0 <2", "1.4.x", "^1.2 || ~3", ">=1.0.0-0", "*"} {
		assert.Empty(t, mistakes(runnerapi.GitRef{Semver: good}), good)
	}
	bad := mistakes(runnerapi.GitRef{Semver: "newest"})
	if assert.Len(t, bad, 1) {
		assert.Equal(t, "ref.semver", bad[0].Field)
	}
	bad = mistakes(runnerapi.GitRef{Semver: "*", Branch: "main"})
	if assert.Len(t, bad, 1) {
		assert.Equal(t, "ref", bad[0].Field)
	}
}

func TestSourceStatus_History(t *testing.T) {
	s := runnerapi.SourceStatus{}
	assert.Empty(t, s.Earlier())
	apply := func(commits ...string) {
		for _, c := range commits {
			s.History, s.Commit = s.WithApplied(runnerapi.SourceCommit{Commit: c}), c
		}
	}
	apply("a1")
	assert.Empty(t, s.Earlier())
	apply("b1", "b1", "c1")
	assert.Len(t, s.History, 3, "the same again is no new entry")
	assert.Equal(t, "b1", s.Earlier())
	apply("b1")
	assert.Equal(t, "a1", s.Earlier(), "and not c1, from which it went back")
	apply("a1")
	assert.Empty(t, s.Earlier())
	apply("d1")
	assert.Equal(t, "a1", s.Earlier())

	for digits, want := range map[string]string{"b": "b1", "b1": "b1", "c": "c1", "e": "", "b12": ""} {
		assert.Equal(t, want, s.Applied(digits), digits)
	}
	apply("b2")
	assert.Empty(t, s.Applied("b"), "they stand for two")
	for i := range 20 {
		apply(fmt.Sprintf("e%d", i))
	}
	assert.Len(t, s.History, 10)
	assert.Equal(t, "e18", s.Earlier())
}

func TestSourceSpec_Promote(t *testing.T) {
	mistakes := func(p runnerapi.SourcePromotion, ref runnerapi.GitRef) []runnerapi.FieldError {
		spec := runnerapi.SourceSpec{URL: "https://git.example.com/shop.git", Type: runnerapi.SourceManifests, Ref: ref, Promote: &p}
		return spec.Validate("prod")
	}
	for _, good := range []runnerapi.SourcePromotion{{From: "staging"}, {From: "shop/prod"}, {From: "shop/staging", After: "168h"}, {From: "staging", After: "0s"}} {
		assert.Empty(t, mistakes(good, runnerapi.GitRef{}), good)
	}
	for field, bad := range map[string]runnerapi.SourcePromotion{
		"promote.from": {From: "a/b/c"}, "promote.from ": {}, "promote.from  ": {From: "prod"}, "promote.from   ": {From: "/"},
		"promote.after": {From: "staging", After: "169h"}, "promote.after ": {From: "staging", After: "-1s"},
	} {
		found := mistakes(bad, runnerapi.GitRef{})
		if assert.Len(t, found, 1, bad) {
			assert.Equal(t, strings.TrimSpace(field), found[0].Field)
		}
	}
	found := mistakes(runnerapi.SourcePromotion{From: "staging"}, runnerapi.GitRef{Branch: "main"})
	if assert.Len(t, found, 1) {
		assert.Equal(t, "promote", found[0].Field)
	}
	assert.Equal(t, runnerapi.Key{Namespace: "shop", Name: "web"}, runnerapi.SourcePromotion{From: "web"}.Source("shop"))
	assert.Equal(t, runnerapi.Key{Namespace: "other", Name: "web"}, runnerapi.SourcePromotion{From: "other/web"}.Source("shop"))
}
