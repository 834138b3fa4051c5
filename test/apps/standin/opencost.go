package main

import (
	"encoding/json"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

type allocation struct {
	Name       string            `json:"name"`
	Properties map[string]string `json:"properties"`
	CPU        float64           `json:"cpuCost"`
	Total      float64           `json:"totalCost"`
}

// allocations answers that each pod costs one, by namespace, or by namespace and App
// (https://www.opencost.io/docs/integrations/api).
func allocations(client kubernetes.Interface) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		pods, err := client.CoreV1().Pods("").List(r.Context(), metav1.ListOptions{})
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		byApp := strings.Contains(r.URL.Query().Get("aggregate"), "label:pipeops_io_app")
		set := map[string]*allocation{}
		for _, p := range pods.Items {
			name := p.Namespace
			if app := p.Labels["pipeops.io/app"]; byApp && app != "" {
				name += "/" + app
			}
			if set[name] == nil {
				set[name] = &allocation{Name: name, Properties: map[string]string{"namespace": p.Namespace}}
			}
			set[name].CPU++
			set[name].Total++
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"code": http.StatusOK, "data": []any{set}}) // the caller is gone if this fails
	}
}
