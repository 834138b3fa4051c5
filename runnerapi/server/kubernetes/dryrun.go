package kubernetes

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/request"
)

// persisted are the subresources for which the API server honours dryRun. Others do not: a dry
// run of serviceaccounts/token returns a token that is valid.
var persisted = []string{"", "status", "scale"}

// readDryRun determines whether a request is a dry run. For a DELETE with a body, the API server
// reads the options in the body and ignores those in the query.
func readDryRun(k *runnerapi.KubernetesRequest, w http.ResponseWriter, r *http.Request) error {
	if !slices.Contains(persisted, k.Subresource) || k.Upgrade != "" {
		return nil
	}
	switch k.Verb {
	case "create", "update", "patch":
		k.DryRun = asksDryRun(r.URL.Query())
	case "delete", "deletecollection":
		if r.ContentLength == 0 {
			k.DryRun = asksDryRun(r.URL.Query())
			return nil
		}
		if r.ContentLength < 0 || r.ContentLength > request.MaxSmallBody { // no DeleteOptions are that long
			return nil
		}
		body, err := keepBody(w, r)
		if err != nil {
			return err
		}
		var options metav1.DeleteOptions
		err = decodeKubernetes(r.Header.Get("Content-Type"), body, &options)
		k.DryRun = err == nil && onlyAll(options.DryRun)
	}
	return nil
}

func asksDryRun(query url.Values) bool { return onlyAll(query["dryRun"]) }

func onlyAll(values []string) bool {
	return len(values) == 1 && values[0] == metav1.DryRunAll
}

// keepBody reads a small body, and leaves it to be read again.
func keepBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	body, err := request.ReadBody(w, r, request.MaxSmallBody)
	if err != nil {
		return nil, err
	}
	r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	return body, nil
}

// protobufPrefix begins an object of Kubernetes in protobuf, within an envelope.
const protobufPrefix = "k8s\x00"

var errMediaType = errors.New("neither JSON nor Kubernetes' protobuf")

// decodeKubernetes reads an object as the API server does.
func decodeKubernetes(contentType string, body []byte, into interface{ Unmarshal([]byte) error }) error {
	media := "application/json"
	if contentType != "" {
		var err error
		if media, _, err = mime.ParseMediaType(contentType); err != nil {
			return err
		}
	}
	switch media {
	case "application/json":
		return kjson.UnmarshalCaseSensitivePreserveInts(body, into)
	case "application/vnd.kubernetes.protobuf":
		raw, ok := bytes.CutPrefix(body, []byte(protobufPrefix))
		if !ok {
			return errMediaType
		}
		var envelope runtime.Unknown
		if err := envelope.Unmarshal(raw); err != nil {
			return err
		}
		return into.Unmarshal(envelope.Raw)
	}
	return errMediaType
}
