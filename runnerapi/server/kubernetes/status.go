package kubernetes

import (
	"encoding/json"
	"maps"
	"net/http"

	"github.com/rs/zerolog"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/audit"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/request"
)

// WriteError answers with an error in the caller's format: a problem, or Kubernetes' Status, which
// kubectl shows.
func WriteError(w http.ResponseWriter, r *http.Request, log zerolog.Logger, err error) {
	if !Is(r) {
		problem.Write(w, problem.RequestID(r.Context()), err)
		return
	}
	e := request.Error(r.Context(), log, err)
	audit.NoteProblem(r.Context(), e)
	maps.Copy(w.Header(), e.GetHeaders())
	if k, bad := Read(r); bad == nil && k.Discovery && !k.AsksOfItself() { // of which client-go shows text alone, and of a Status nothing
		http.Error(w, kubernetesMessage(e), e.Status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.Status)
	_ = json.NewEncoder(w).Encode(kubernetesStatus(e)) // the peer is gone if this fails
}

// kubernetesStatus returns a problem in the form of Kubernetes. The code is the cause's type.
func kubernetesStatus(e *runnerapi.Error) metav1.Status {
	return metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Message: kubernetesMessage(e), Reason: reasons[e.Status], Code: int32(e.Status), //nolint:gosec // an HTTP status
		Details: &metav1.StatusDetails{
			RetryAfterSeconds: int32(e.RetryAfter.Seconds()),
			Causes:            []metav1.StatusCause{{Type: metav1.CauseType(e.Code), Message: e.Detail, Field: e.Field}},
		},
	}
}

func kubernetesMessage(e *runnerapi.Error) string {
	message := "PipeOps agent: " + e.Detail
	if e.Fix != "" {
		message += " (fix: " + e.Fix + ")"
	}
	return message
}

var reasons = map[int]metav1.StatusReason{
	http.StatusBadRequest: metav1.StatusReasonBadRequest, http.StatusUnauthorized: metav1.StatusReasonUnauthorized,
	http.StatusForbidden: metav1.StatusReasonForbidden, http.StatusNotFound: metav1.StatusReasonNotFound,
	http.StatusMethodNotAllowed: metav1.StatusReasonMethodNotAllowed, http.StatusRequestEntityTooLarge: metav1.StatusReasonRequestEntityTooLarge,
	http.StatusTooManyRequests: metav1.StatusReasonTooManyRequests, http.StatusServiceUnavailable: metav1.StatusReasonServiceUnavailable,
	http.StatusGatewayTimeout: metav1.StatusReasonTimeout, http.StatusInternalServerError: metav1.StatusReasonInternalError,
}
