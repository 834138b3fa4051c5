package server

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// SourceWebhooks carries out Runners' calls about webhooks of sources. An error that is a
// [problem.Error] is sent unchanged, any other without its text.
type SourceWebhooks interface {
	Set(ctx context.Context, runner, agent string, source runnerapi.Key) (announce.SourceWebhook, error)
	Get(ctx context.Context, runner, agent string, source runnerapi.Key) (announce.SourceWebhook, error)
	Delete(ctx context.Context, runner, agent string, source runnerapi.Key) error
}

// SourceWebhookHandler serves the webhook of a source, below SourceWebhookPath. identify returns
// the Runner that asks.
func SourceWebhookHandler(of SourceWebhooks, identify func(*http.Request) (runner string, err error)) http.Handler {
	return jsonHandler(func(w http.ResponseWriter, r *http.Request) ([]byte, error) {
		runner, err := identified(w, r, identify)
		if err != nil {
			return nil, err
		}
		do := of.Get
		switch r.Method {
		case http.MethodPut:
			do = of.Set
		case http.MethodDelete:
			do = func(ctx context.Context, runner, agent string, source runnerapi.Key) (announce.SourceWebhook, error) {
				return announce.SourceWebhook{}, of.Delete(ctx, runner, agent, source)
			}
		}
		hook, err := do(r.Context(), runner, r.PathValue("agent"), runnerapi.Key{Namespace: r.PathValue("namespace"), Name: r.PathValue("source")})
		switch {
		case err != nil:
			return nil, err
		case r.Method == http.MethodDelete:
			return []byte("{}"), nil
		}
		return json.Marshal(hook) //nolint:gosec // the answer to PUT is where its Runner gets the secret
	}, http.MethodGet, http.MethodHead, http.MethodPut, http.MethodDelete)
}
