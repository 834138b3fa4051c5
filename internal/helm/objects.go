package helm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	release "helm.sh/helm/v4/pkg/release/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/pipeops/pipeops-vm-agent/internal/decode"
	"github.com/pipeops/pipeops-vm-agent/internal/denylist"
	"github.com/pipeops/pipeops-vm-agent/internal/duplicates"
	"github.com/pipeops/pipeops-vm-agent/internal/policy/input"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// object is an object of a chart.
type object struct {
	*unstructured.Unstructured
	source string // template
	hook   string // when it is created, for a hook; definition for what comes ahead of everything
	at     func() string

	warnings []string // list entries that were left out
}

// where returns the object's place in its template, as far as that can be found.
func (o *object) where() string {
	if o.at == nil {
		return o.source
	}
	return o.at()
}

// ofObjects bounds the expansion of a template's aliases, as the process that rendered it did.
// Another program may have written what is read from the cluster.
var ofObjects = decode.Limits{Bytes: 64 << 20, Values: 200_000, Aliases: 10_000, Expanded: 8 << 20, Depth: 1000}

// parseObjects splits a rendered template into its documents, and lists into their items.
func parseObjects(source, text, hook string) ([]*object, error) {
	bad := func(err error) error { return unreadable(fmt.Errorf("%s: %w", source, err)) }
	if err := ofObjects.PlainAliases([]byte(text)); err != nil {
		return nil, bad(err)
	}
	documents := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	var all []*object
	for {
		var raw runtime.RawExtension
		err := documents.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, bad(err)
		}
		if raw.Raw = bytes.TrimSpace(raw.Raw); len(raw.Raw) == 0 || bytes.Equal(raw.Raw, []byte("null")) {
			continue
		}
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(raw.Raw); err != nil {
			return nil, bad(err)
		}
		if _, isList := decode.Items(u.Object); !isList {
			all = append(all, &object{Unstructured: u, source: source, hook: hook})
			continue
		}
		err = u.EachListItem(func(item runtime.Object) error {
			all = append(all, &object{Unstructured: item.(*unstructured.Unstructured), source: source, hook: hook})
			return nil
		})
		if err != nil {
			return nil, bad(err)
		}
	}
}

// definition marks the objects of a chart's folder crds.
const definition = "crd"

// String returns the object's name for messages.
func (o *object) String() string { return o.GetKind() + " " + o.GetName() }

func (o *object) kind() string { return denylist.Kind(o.GroupVersionKind()) }

// limits are the objects that no chart may contain, regardless of the policy: those that may not be
// applied through the agent, and those outside the release's namespace.
type limits struct {
	denylist.Agent
	namespace string // of the release
}

// check refuses an object that a chart may not create.
func (l limits) check(o *object) error {
	switch {
	case o.GetKind() == "" || o.GetAPIVersion() == "" || o.GetName() == "" && o.GetGenerateName() == "":
		return problem.Errorf(problem.Invalid, "have the chart give each object apiVersion, kind and metadata.name",
			"an object in %s lacks one of apiVersion, kind and name", o.where()).WithField("chart")
	case o.GetNamespace() != "" && o.GetNamespace() != l.namespace:
		return inTemplate(o, problem.Errorf(problem.Forbidden, "have the chart use .Release.Namespace",
			"it is in namespace %s: a chart works in the namespace of its release alone, here %s", o.GetNamespace(), l.namespace))
	case o.kind() == "Namespace":
		return inTemplate(o, problem.Errorf(problem.Forbidden, "make it with: pipeops-runner namespace create AGENT NAME", "no chart makes a namespace"))
	}
	u := o.Unstructured
	if u.GetNamespace() == "" { // Helm sets it
		u = u.DeepCopy()
		u.SetNamespace(l.namespace)
	}
	if err := l.Check(u); err != nil {
		return inTemplate(o, err)
	}
	return nil
}

// place returns the object and its template.
func place(o *object) string { return fmt.Sprintf("%s (%s)", o, o.where()) }

// inTemplate adds to an error the object, its template, and the object's fields.
func inTemplate(o *object, err error) error {
	p := &problem.Error{}
	if !errors.As(err, &p) {
		return err
	}
	located := *p
	if located.Field != "" && located.Field != "chart" {
		located.Detail = located.Field + ": " + located.Detail
	}
	located.Fields = nil
	for _, f := range p.Fields {
		located.Fields = append(located.Fields, problem.FieldError{Field: "chart", Location: place(o) + ": " + f.Field, Message: f.Message})
	}
	return located.WithField("chart").WithLocation(place(o))
}

// objectIntents returns the objects as far as a policy can bound them. Of a kind that the cluster
// does not know, nothing can be made. Before it is made, the policy is asked again.
func objectIntents(objects []*object, mapper meta.RESTMapper) ([]runnerapi.ObjectIntent, error) {
	all := make([]runnerapi.ObjectIntent, len(objects))
	for i, o := range objects {
		var err error
		if all[i], err = objectIntent(o); err != nil {
			return nil, unreadable(fmt.Errorf("%s: %s: %w", o.source, o, err))
		}
		_, namespaced, err := scopeOf(o, objects, mapper)
		if err != nil && !problem.Is(err, problem.Invalid) {
			return nil, err
		}
		all[i].ClusterScoped = err == nil && !namespaced
	}
	return all, nil
}

func objectIntent(o *object) (runnerapi.ObjectIntent, error) {
	in, err := input.Object(o.Unstructured)
	in.Location = place(o)
	return in, err
}

// releaseObjects returns the objects of a revision.
func releaseObjects(r *release.Release) ([]*object, error) {
	all, err := parseObjects("release "+r.Name, r.Manifest, "")
	if err != nil {
		return nil, err
	}
	for _, h := range r.Hooks {
		events := make([]string, len(h.Events))
		for i, e := range h.Events {
			events[i] = e.String()
		}
		found, err := parseObjects(h.Path, h.Manifest, strings.Join(events, ","))
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	unduplicated(all)
	return all, nil
}

// unduplicated removes the list entries that a server-side apply refuses, with a warning.
func unduplicated(all []*object) {
	duplicates.RemoveIn(all, func(o *object) *unstructured.Unstructured { return o.Unstructured },
		func(o *object, warnings []string) { o.warnings = warnings })
}

func described(o *object, change string) runnerapi.ReleaseObject {
	return runnerapi.ReleaseObject{
		APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Name: o.GetName(), Hook: o.hook, Change: change, Warnings: o.warnings,
	}
}
