package source

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
	kjson "sigs.k8s.io/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Names of the resource.
const (
	Kind    = "Source"
	Plural  = "sources"
	Group   = "pipeops.io"
	Version = "v1alpha1"
)

var resource = schema.GroupVersionResource{Group: Group, Version: Version, Resource: Plural}

// object is the custom resource. It is handled as unstructured: there are few, and no cache.
type object struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   runnerapi.SourceSpec   `json:"spec"`
	Status runnerapi.SourceStatus `json:"status,omitzero"`
}

// List returns the sources of a namespace, as Runners see them.
func List(ctx context.Context, c client.Reader, namespace string) ([]runnerapi.Source, error) {
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion(Group + "/" + Version)
	list.SetKind(Kind + "List")
	if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	return wires(list.Items)
}

// wires returns sources as Runners see them, by name.
func wires(items []unstructured.Unstructured) ([]runnerapi.Source, error) {
	out := make([]runnerapi.Source, 0, len(items))
	for i := range items {
		o, err := read(&items[i])
		if err != nil {
			return nil, err
		}
		out = append(out, o.wire())
	}
	slices.SortFunc(out, func(a, b runnerapi.Source) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

func newObject(key runnerapi.Key) *object {
	o := &object{}
	o.APIVersion, o.Kind = Group+"/"+Version, Kind
	o.Namespace, o.Name, o.Labels = key.Namespace, key.Name, objectmeta.Labels()
	return o
}

func read(u *unstructured.Unstructured) (*object, error) {
	o := &object{}
	text, err := u.MarshalJSON()
	if err == nil {
		err = json.Unmarshal(text, o)
	}
	if err != nil {
		return nil, fmt.Errorf("read source %s/%s: %w", u.GetNamespace(), u.GetName(), err)
	}
	return o, nil
}

func (o *object) write() (*unstructured.Unstructured, error) {
	content, err := tree(o)
	if err != nil {
		return nil, fmt.Errorf("write source %s: %w", o.key(), err)
	}
	unstructured.RemoveNestedField(content, "status") // the subresource has it
	return &unstructured.Unstructured{Object: content}, nil
}

// tree returns a value in its JSON form, since only JSON flattens embedded structs.
func tree(v any) (content map[string]any, err error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return content, kjson.UnmarshalCaseSensitivePreserveInts(text, &content)
}

func (o *object) key() runnerapi.Key { return runnerapi.Key{Namespace: o.Namespace, Name: o.Name} }

// sync returns the last call that requested a look now.
func (o *object) sync() string { return o.Annotations[objectmeta.Sync] }

// observed reports whether the status describes the newest spec and sync call, and, for a
// suspension, the last Runner that put the source.
func (o *object) observed() bool {
	return o.Status.ObservedGeneration == o.Generation && o.Status.ObservedSync == o.sync() &&
		(o.Status.Suspension == nil || o.suspendedAsPut())
}

// caller returns the Runner that put the source: what it brings is done in that Runner's name.
func (o *object) caller() runnerapi.Caller {
	return runnerapi.Caller{Runner: o.Annotations[objectmeta.ChangedBy], RequestID: o.Annotations[objectmeta.RequestID]}
}

// wire returns the source as a Runner sees it.
func (o *object) wire() runnerapi.Source {
	s := runnerapi.Source{
		Namespace: o.Namespace, Name: o.Name, Generation: o.Generation, CreatedAt: o.CreationTimestamp.Time,
		Runner: o.caller().Runner, Spec: o.Spec, Status: o.Status,
	}
	s.Status.ObservedGeneration = max(0, s.Status.ObservedGeneration) // the schema's default is for kstatus
	if !o.observed() || s.Status.Phase == "" {
		s.Status.Phase = runnerapi.SourcePending
	}
	return s
}
