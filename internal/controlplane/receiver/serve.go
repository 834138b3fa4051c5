package receiver

import (
	"errors"
	"io"
	"net/http"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// Path is where webhooks arrive, as a pattern of http.ServeMux.
const Path = "/v1/receivers/{id}"

const (
	// maxBody is room for a push of some thousand commits. GitHub sends up to 25 MiB; of a push
	// with more, the source's next look at its interval brings the commit.
	maxBody = 5 << 20
	// maxReading is how many bodies are read at the same time, and maxReadingEach those for one
	// receiver.
	maxReading, maxReadingEach = 64, 8
)

// ServeHTTP takes a webhook. It answers 202 once a look is requested, and 200 if the event is none
// for which sources are looked at.
func (r *Receivers) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	status, err := r.take(w, req)
	if err != nil {
		problem.Write(w, problem.RequestID(req.Context()), err)
		return
	}
	w.WriteHeader(status)
}

func (r *Receivers) take(w http.ResponseWriter, req *http.Request) (status int, err error) {
	receiver, err := r.config.Store.Receiver(req.Context(), req.PathValue("id"))
	if errors.Is(err, store.ErrNotFound) {
		return 0, unknown()
	}
	if err != nil {
		return 0, err
	}
	leave, ok := r.reading.Enter(receiver.ID)
	if !ok {
		return 0, problem.Errorf(problem.TooManyRequests, "send it again", "too many requests for this webhook are in progress").WithRetryAfter(retryAfter)
	}
	defer leave()
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBody))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return 0, problem.Errorf(problem.TooLarge, "push fewer commits at a time, or wait for the source's interval", "the event has more than %d MiB", maxBody>>20)
	}
	if err != nil {
		return 0, problem.Errorf(problem.BadRequest, "send it again", "the body ended early")
	}
	if err := verify(receiver.Secret, req.Header, body, r.config.Now()); err != nil {
		return 0, err
	}
	event := eventOf(req.Header)
	if !moves(event) {
		return http.StatusOK, nil
	}
	receiver.Event, receiver.Commit = event, commitOf(req.Header, body)
	return http.StatusAccepted, r.request(req.Context(), receiver)
}

// unknown does not tell apart what there never was, what was deleted, and what its Runner may use
// no longer.
func unknown() error {
	return problem.Errorf(problem.NotFound, "make one with `pipeops-runner source webhook set`, and enter its address in the Git server's settings",
		"there is no webhook at this address")
}
