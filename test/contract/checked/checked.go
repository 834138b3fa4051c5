// Package checked makes clients of the Runner API check each answer against its document.
package checked

import (
	"net/http"
	"sync"
	"testing"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/server"
	"github.com/pipeops/pipeops-vm-agent/test/contract"
)

// document is made when the first answer comes.
var document = sync.OnceValues(func() (*contract.Document, error) {
	raw, err := server.OpenAPI("test")
	if err != nil {
		return nil, err
	}
	return contract.Read(raw)
})

// Around returns a wrapper for client.Config. It fails the test if an answer breaks the
// document.
func Around(t testing.TB) func(http.RoundTripper) http.RoundTripper {
	var mu sync.Mutex
	var violations []error
	t.Cleanup(func() { // a body may be closed after the test has ended
		mu.Lock()
		defer mu.Unlock()
		for _, err := range violations {
			t.Error(err)
		}
	})
	return Reporting(func(err error) {
		mu.Lock()
		defer mu.Unlock()
		violations = append(violations, err)
	})
}

// Reporting is like Around without a test. The call itself fails as well.
func Reporting(report func(error)) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper { return lazy{next, report} }
}

type lazy struct {
	http.RoundTripper
	report func(error)
}

// RoundTrip implements http.RoundTripper.
func (l lazy) RoundTrip(r *http.Request) (*http.Response, error) {
	d, err := document()
	if err != nil {
		return nil, err
	}
	return d.Around(l.RoundTripper, l.report).RoundTrip(r)
}
