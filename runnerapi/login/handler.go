package login

import (
	"encoding/json"
	"net/http"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

const (
	// Path is where the control plane renews a Runner's certificate, over mutual TLS
	// with the old one. It has no body; asking again is harmless.
	Path = "/v1/runner/certificate"
	// HeaderIssuer is in each answer to a Runner: the key ID, in hexadecimal, of the
	// CA that issues certificates now.
	HeaderIssuer = "Pipeops-Ca-Key-Id"
)

// Answer is a renewed certificate.
type Answer struct {
	// Certificate is PEM: the certificate, then what leads to CAs before.
	Certificate string `json:"certificate"`
	// CA is PEM: the CAs to trust now.
	CA string `json:"ca"`
}

// Handler serves Path. If an error of renew is a [problem.Error], it is sent unchanged, any other
// without its text.
func Handler(renew func(*http.Request) (Answer, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := problem.NoBody(w, r); err != nil {
			problem.Write(w, problem.RequestID(r.Context()), err)
			return
		}
		answer, err := renew(r)
		var body []byte
		if err == nil {
			body, err = json.Marshal(answer)
		}
		if err != nil {
			problem.Write(w, problem.RequestID(r.Context()), err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		_, _ = w.Write(body) // the client is gone if this fails
	})
}
