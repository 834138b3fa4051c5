package cli_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

type brokerError struct{}

func (brokerError) Error() string {
	return "log in as ci: refused (fix: check the password (and the user))"
}
func (brokerError) ErrorName() string { return "bad_login" }

func TestFailure_Print(t *testing.T) {
	of := func(code problem.Code, fix, detail string) *problem.Error {
		return problem.New(400, code, fix, "%s", detail)
	}
	withRequest := of(problem.Invalid, "correct it", "is empty").WithField("ports[0].name")
	withRequest.RequestID = "r-1"
	several := of(problem.Invalid, "correct them", "two are wrong")
	several.Fields = []problem.FieldError{{Field: "a", Message: "x"}, {Field: "b", Message: "y"}}
	for want, err := range map[string]error{
		"error: agent shop: web: no rule allows it\n  fix: ask the owner\n  code: PO-3001 policy_denied (prog explain PO-3001)\n": fmt.Errorf(
			"agent shop: web: %w", of("policy_denied", "ask the owner", "no rule allows it")),
		"error: agent shop: ports[0].name: is empty\n  fix: correct it\n  code: PO-1011 invalid, request r-1 (prog explain PO-1011)\n": fmt.Errorf(
			"agent shop: %w", withRequest),
		"error: two are wrong\n  field: a: x\n  field: b: y\n  fix: correct them\n  code: PO-1011 invalid (prog explain PO-1011)\n": several,
		"error: line 3: no kind\n  field: kind\n  code: PO-1011 invalid (prog explain PO-1011)\n": of(problem.Invalid, "", "no kind").
			WithField("kind").WithLocation("line 3"),
		"error: agent shop: name: is empty\n  fix: correct it\n  code: PO-1011 invalid (prog explain PO-1011)\n": fmt.Errorf(
			"agent shop: %w", of(problem.Invalid, "correct it", "is empty").WithField("path.name")),
		"error: it is gone\n  code: of_tomorrow\n":                                   of("of_tomorrow", "", "it is gone").WithField("body"),
		"error: no cluster\n  fix: name one (or two)\n":                              errors.New("no cluster (fix: name one (or two))"),
		"error: a: x (fix: y)\nb: z (fix: w)\n":                                      errors.New("a: x (fix: y)\nb: z (fix: w)"),
		"error: a: x (fix: y): later\n":                                              errors.New("a: x (fix: y): later"),
		"error: plain\n":                                                             errors.New("plain"),
		"error: wrong flag\n  fix: see `prog --help`\n":                              cli.Usage(errors.New("wrong flag")),
		"error: wrong flag\n  fix: name it\n":                                        cli.Usage(errors.New("wrong flag (fix: name it)")),
		"error: a b\n  fix: c d\n  code: PO-1004 not_found (prog explain PO-1004)\n": of(problem.NotFound, "c\nd", "a\nb"),
		"error: serve: log in as ci: refused\n  fix: check the password (and the user)\n  code: PO-6002 bad_login (prog explain PO-6002)\n": fmt.Errorf(
			"serve: %w", brokerError{}),
	} {
		var said bytes.Buffer
		cli.PrintError(&said, &cobra.Command{Use: "prog"}, err)
		assert.Equal(t, want, said.String())
	}
}

func TestFailure_LastLines(t *testing.T) {
	var said bytes.Buffer
	cli.Failure{
		What: "web is failed", Details: []string{"object: pod/web-0"}, Fix: "correct it", Name: "CrashLoop", LastLines: []string{"a\x1b[2J", "b"},
	}.Print(&said, "prog")
	assert.Equal(t, "error: web is failed\n  object: pod/web-0\n  fix: correct it\n  code: PO-2005 CrashLoop (prog explain PO-2005)\n"+
		"  last lines:\n    a [2J\n    b\n", said.String())
	said.Reset()
	cli.Failure{What: "w", Request: "r-1"}.Print(&said, "prog")
	assert.Equal(t, "error: w\n  request: r-1\n", said.String())
}
