package login

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/pipeops/pipeops-vm-agent/internal/decode"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

const (
	// Path is where the control plane renews a Runner's certificate, over mutual TLS
	// with the old one. It has no body; asking again is harmless.
	Path = "/v1/runner/certificate"
	// ExchangePath is where the control plane exchanges an ID token for a certificate of the Runner
	// that is bound to it. It needs no certificate.
	ExchangePath = "/v1/runner/exchange"
	// HeaderIssuer is in each answer to a Runner: the key ID, in hexadecimal, of the
	// CA that issues certificates now.
	HeaderIssuer = "Pipeops-Ca-Key-Id"
)

// maxRequest bounds an ExchangeRequest, in bytes.
const maxRequest = 64 << 10

// Answer is a renewed certificate.
type Answer struct {
	// Certificate is PEM: the certificate, then what leads to CAs before.
	Certificate string `json:"certificate"`
	// CA is PEM: the CAs to trust now.
	CA string `json:"ca"`
}

// ExchangeRequest asks for a certificate of a Runner.
type ExchangeRequest struct {
	Runner string `json:"runner"`
	// Token is an ID token, as it was issued: a secret.
	Token string `json:"token"`
	// Request is PEM: a certificate request, which proves the key. Names in it are ignored. A token
	// is good for one key.
	Request string `json:"request"`
}

// String keeps the token out of formatted output.
func (r ExchangeRequest) String() string { return "exchange for Runner " + r.Runner }

// GoString keeps the token out of %#v.
func (r ExchangeRequest) GoString() string { return r.String() }

// Exchanged is a certificate for an ID token, and what else a Runner needs.
type Exchanged struct {
	Answer
	Edge         string `json:"edge"`
	AgentsDomain string `json:"agentsDomain"`
	TrustDomain  string `json:"trustDomain"`
}

// Handler serves Path. If an error of renew is a [problem.Error], it is sent unchanged, any other
// without its text.
func Handler(renew func(*http.Request) (Answer, error)) http.Handler {
	return answering(func(w http.ResponseWriter, r *http.Request) (any, error) {
		if err := problem.NoBody(w, r); err != nil {
			return nil, err
		}
		return renew(r)
	})
}

// ExchangeHandler serves ExchangePath, with errors as Handler's.
func ExchangeHandler(exchange func(*http.Request, ExchangeRequest) (Exchanged, error)) http.Handler {
	return answering(func(w http.ResponseWriter, r *http.Request) (any, error) {
		in, err := readExchange(http.MaxBytesReader(w, r.Body, maxRequest))
		if err != nil {
			return nil, err
		}
		return exchange(r, in)
	})
}

func readExchange(body io.Reader) (in ExchangeRequest, err error) {
	text, err := io.ReadAll(body)
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return in, problem.Errorf(problem.TooLarge, "send less", "the body is larger than %d bytes", maxRequest)
	}
	if err != nil {
		return in, problem.New(http.StatusRequestTimeout, problem.RequestTimeout, "send it again", "the body did not arrive")
	}
	if err := decode.LimitsFor(maxRequest).JSON(text, &in); err != nil { // its text may have a part of the token
		return in, problem.Errorf(problem.BadRequest, "send an object with runner, token and request", "the body is not the JSON expected").WithField("body")
	}
	for _, field := range [][2]string{{"runner", in.Runner}, {"token", in.Token}, {"request", in.Request}} {
		if field[1] == "" {
			return in, problem.Errorf(problem.Invalid, problem.CorrectField, "is missing").WithField(field[0])
		}
	}
	return in, nil
}

// answering writes what a function returns.
func answering(do func(http.ResponseWriter, *http.Request) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, err := do(w, r)
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
