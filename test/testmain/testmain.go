// Package testmain stops what the tests of a package share.
package testmain

import (
	"fmt"
	"os"
)

// Runner runs tests and returns the exit code: a testing.M.
type Runner interface{ Run() int }

// Wrap returns a Runner that stops shared parts after the tests of m. A part that fails to
// stop fails the package.
func Wrap(m Runner, stop ...func() error) Runner { return wrapped{m, stop} }

type wrapped struct {
	tests Runner
	stop  []func() error
}

// Run implements Runner.
func (w wrapped) Run() int {
	code := w.tests.Run()
	for _, stop := range w.stop {
		if err := stop(); err != nil {
			fmt.Fprintln(os.Stderr, "FAIL: stop what the tests shared:", err)
			code = max(code, 1)
		}
	}
	return code
}
