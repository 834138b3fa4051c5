package run

import (
	"fmt"
	"path/filepath"
	"runtime"
)

// failure is what Check ends a step with.
type failure struct{ error }

func (f failure) Unwrap() error { return f.error }

func fail(err error) {
	if err != nil {
		_, file, line, _ := runtime.Caller(2)
		panic(failure{fmt.Errorf("%s:%d: %w", filepath.Base(file), line, err)})
	}
}

// Check ends the step, or what Try calls, if there is an error. A benchmark has nothing else to do
// with one: each call that it makes is needed for a figure.
func Check(err error) { fail(err) }

// Must returns a value, or does with the error what Check does.
func Must[T any](value T, err error) T {
	fail(err)
	return value
}

// Failf is Check of a new error.
func Failf(format string, args ...any) { fail(fmt.Errorf(format, args...)) }

// Try returns the error that a function was ended with.
func Try(do func()) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			err = r.error
		default:
			panic(r)
		}
	}()
	do()
	return nil
}
