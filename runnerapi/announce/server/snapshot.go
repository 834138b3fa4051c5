package server

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// SnapshotHandler serves all agents to Runners. identify returns the Runner that asks, from its
// certificate. list returns the agents that the Runner may see. An error that is a [problem.Error]
// is sent unchanged, any other without its text.
func SnapshotHandler(
	list func(ctx context.Context, runner string) ([]announce.Agent, error),
	identify func(*http.Request) (runner string, err error),
) http.Handler {
	return jsonHandler(func(w http.ResponseWriter, r *http.Request) ([]byte, error) {
		agents, err := snapshotFor(w, r, list, identify)
		if err != nil {
			return nil, err
		}
		return json.Marshal(announce.Snapshot{Agents: agents})
	})
}

// jsonHandler serves calls without a body: those that read, unless methods are given. Answers are
// not to be kept: they change at any time.
func jsonHandler(answer func(http.ResponseWriter, *http.Request) ([]byte, error), methods ...string) http.Handler {
	if methods == nil {
		methods = []string{http.MethodGet, http.MethodHead}
	}
	allowed := strings.Join(methods, ", ")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !slices.Contains(methods, r.Method) {
			w.Header().Set("Allow", allowed)
			problem.Write(w, problem.RequestID(r.Context()), problem.Errorf(problem.NotAllowed, "use "+methods[0], "%s takes %s", r.URL.Path, allowed))
			return
		}
		body, err := answer(w, r)
		if err != nil {
			problem.Write(w, problem.RequestID(r.Context()), err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		_, _ = w.Write(body) // the client is gone if this fails
	})
}

func snapshotFor(
	w http.ResponseWriter, r *http.Request,
	list func(context.Context, string) ([]announce.Agent, error),
	identify func(*http.Request) (string, error),
) ([]announce.Agent, error) {
	runner, err := identified(w, r, identify)
	if err != nil {
		return nil, err
	}
	agents, err := list(r.Context(), runner)
	if agents == nil {
		agents = []announce.Agent{}
	}
	return agents, err
}

// identified returns which Runner asks, in a request without a body. An error that is not a
// [problem.Error] is not a refusal: the handler returns 500 without its text.
func identified(w http.ResponseWriter, r *http.Request, identify func(*http.Request) (string, error)) (string, error) {
	runner, err := identify(r)
	if err != nil {
		return "", err
	}
	if err := problem.NoBody(w, r); err != nil {
		return "", err
	}
	return runner, nil
}
