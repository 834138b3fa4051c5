package appfile

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/decode"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// explained adds to the errors about unknown fields of an App's spec the patches by which the App
// gets them, if Kubernetes' pods or their containers have these fields.
func explained(err error, app map[string]any) error {
	if all, ok := errors.AsType[decode.Errors](err); ok {
		for _, e := range all {
			explain(e, app)
		}
	} else if e, ok := errors.AsType[*decode.Error](err); ok {
		explain(e, app)
	}
	return err
}

func explain(e *decode.Error, app map[string]any) {
	if !e.Unknown {
		return
	}
	field := strings.TrimPrefix(e.Field, "spec.")
	patch := field + ": ..."
	switch {
	case podFields()[field]:
	case containerFields()[field]:
		patch = fmt.Sprintf("containers: [{name: %s, %s}]", cmp.Or(textOf(app, "metadata", "name"), "NAME-OF-THE-APP"), patch)
	default:
		return
	}
	patch = "spec: {template: {spec: {" + patch + "}}}"
	if cmp.Or(textOf(app, "spec", "type"), textOf(app, "type")) == string(runnerapi.TypeCronJob) {
		patch = "spec: {jobTemplate: {" + patch + "}}"
	}
	e.Message += "; Kubernetes has it, and the App gets it by patches: [{patch: {" + patch + "}}]"
}

var (
	podFields       = sync.OnceValue(func() map[string]bool { return fieldsOf(reflect.TypeFor[corev1.PodSpec]()) })
	containerFields = sync.OnceValue(func() map[string]bool { return fieldsOf(reflect.TypeFor[corev1.Container]()) })
)

func fieldsOf(t reflect.Type) map[string]bool {
	fields := map[string]bool{}
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		fields[name] = name != ""
	}
	return fields
}

// textOf returns a text at a path of a document, or an empty one.
func textOf(at any, path ...string) string {
	for _, key := range path {
		object, _ := at.(map[string]any)
		at = object[key]
	}
	text, _ := at.(string)
	return text
}
