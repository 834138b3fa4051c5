package server

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-chi/chi/v5"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/request"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/kubernetes"
)

// kubernetesRoutes adds the Kubernetes API to the routes and to the document.
func kubernetesRoutes(router chi.Router, doc *huma.OpenAPI, api http.Handler) {
	for _, method := range kubernetes.Methods {
		router.Method(method, request.KubernetesPrefix+"/*", api)
	}
	op := operation(runnerapi.KubernetesCall, "Kubernetes", "Use the Kubernetes API",
		"Everything below /v1/kubernetes is passed on to the cluster's API server, with any method and any number of parts in its path, as the user and the groups that the customer's policy "+
			"names. Watches, logs that are followed, WebSockets and SPDY go on for as long as both sides like. `pipeops-runner kubeconfig` makes a kubeconfig for it. "+
			"Errors are Kubernetes' Status; the agent's own about discovery are text, because client-go shows no Status there. "+
			"A policy has to name this command.", 0)
	op.Parameters = []*huma.Param{{Name: "path", In: "path", Required: true, Description: "Path of the API server.", Example: "api/v1/pods", Schema: &huma.Schema{Type: huma.TypeString}}}
	op.Responses = map[string]*huma.Response{"default": {Description: "What the API server answers, or a Status of the agent's."}}
	op.Errors = nil
	doc.AddOperation(&op)
}
