package kubernetes

import (
	"bytes"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"

	"github.com/pipeops/pipeops-vm-agent/internal/denylist"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/request"
)

// guardService refuses a write that sets externalIPs of a Service, in any form that the API server
// reads: package denylist refuses them in manifests and charts.
func guardService(k *runnerapi.KubernetesRequest, w http.ResponseWriter, r *http.Request) error {
	writes := slices.Contains([]string{"create", "update", "patch"}, k.Verb)
	if !writes || k.Group != "" || k.Resource != "services" || k.Connects() {
		return nil
	}
	body, err := keepBody(w, r)
	if err != nil {
		return err
	}
	sets, err := setsExternalIPs(r.Header, body)
	switch {
	case err != nil:
		return problem.Errorf(problem.BadRequest, "send one Service or a patch, as JSON, YAML or Kubernetes' protobuf",
			"the agent cannot read this write of a Service")
	case sets:
		return problem.Errorf(problem.Forbidden, "leave it out: the owner of the cluster can set it with kubectl",
			"with spec.externalIPs a Service takes traffic to addresses of others (CVE-2020-8554)")
	}
	return nil
}

// setsExternalIPs reports whether a write sets the field to anything but an empty list.
func setsExternalIPs(h http.Header, body []byte) (bool, error) {
	types := h.Values("Content-Type")
	if len(types) > 1 || h.Get("Content-Encoding") != "" {
		return false, errMediaType
	}
	media := ""
	if len(types) == 1 && types[0] != "" {
		var err error
		if media, _, err = mime.ParseMediaType(types[0]); err != nil {
			return false, err
		}
	}
	switch {
	case media == "application/vnd.kubernetes.protobuf":
		var service corev1.Service
		err := decodeKubernetes(media, body, &service)
		return len(service.Spec.ExternalIPs) > 0, err
	case strings.HasSuffix(media, "yaml"):
		var err error
		if body, err = request.Decoder.ServerJSON(body); err != nil {
			return false, err
		}
	case media != "" && !strings.HasSuffix(media, "json"):
		return false, errMediaType
	}
	var discarded any
	if strict, err := kjson.UnmarshalStrict(body, &discarded); err != nil || len(strict) > 0 {
		return false, errors.Join(append(strict, err)...)
	}
	var v any
	err := json.NewDecoder(bytes.NewReader(body)).Decode(&v)
	if patch, ok := v.([]any); ok {
		return slices.ContainsFunc(patch, operationSets), err
	}
	return hasExternalIPs(v), err
}

// operationSets reports whether an operation of a JSON patch (RFC 6902) writes the field.
func operationSets(v any) bool {
	operation, _ := v.(map[string]any)
	if operation["op"] == "remove" || operation["op"] == "test" {
		return false
	}
	path, _ := operation["path"].(string)
	return slices.Contains(strings.Split(path, "/"), denylist.ExternalIPs) || hasExternalIPs(operation["value"])
}

// hasExternalIPs reports whether an object has the field, at any depth.
func hasExternalIPs(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for key, below := range v {
			list, ok := below.([]any)
			if key == denylist.ExternalIPs && below != nil && (!ok || len(list) > 0) || hasExternalIPs(below) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, hasExternalIPs)
	}
	return false
}
