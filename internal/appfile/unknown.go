package appfile

import (
	"errors"
	"reflect"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/decode"
)

// explained says of an unknown field of an App's spec whether Kubernetes' pods have it.
func explained(err error) error {
	e, ok := errors.AsType[*decode.Error](err)
	if !ok || !e.Unknown || !podFields()[strings.TrimPrefix(e.Field, "spec.")] {
		return err
	}
	e.Message += "; an App cannot have it, but a pod in a manifest can (pipeops-runner apply)"
	return e
}

// podFields are the fields of Kubernetes' pods and their containers.
var podFields = sync.OnceValue(func() map[string]bool {
	fields := map[string]bool{}
	for _, t := range []reflect.Type{reflect.TypeFor[corev1.PodSpec](), reflect.TypeFor[corev1.Container]()} {
		for field := range t.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			fields[name] = name != ""
		}
	}
	return fields
})
