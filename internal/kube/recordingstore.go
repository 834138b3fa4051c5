package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/recording"
)

const recordingPrefix = "recording-"

// RecordingStore keeps recordings of sessions as ControllerRevisions in the agent's namespace,
// beside the audit log. The API server does not allow changes of their data.
type RecordingStore struct{ k *Client }

var _ recording.Store = RecordingStore{}

// RecordingStore returns the store of recordings in the agent's namespace.
func (k *Client) RecordingStore() RecordingStore { return RecordingStore{k} }

func recordingLabels() map[string]string {
	return map[string]string{objectmeta.ManagedBy: objectmeta.ManagedByAgent, objectmeta.Operation: "recording"}
}

func recordingName(id string, part int) string {
	return fmt.Sprintf("%s%s-%06d", recordingPrefix, id, part)
}

// recordingPart parses such a name.
func recordingPart(name string) (id string, part int, ok bool) {
	rest, ours := strings.CutPrefix(name, recordingPrefix)
	at := strings.LastIndexByte(rest, '-')
	if !ours || at < 0 || !recording.ValidID(rest[:at]) {
		return "", 0, false
	}
	part, err := strconv.Atoi(rest[at+1:])
	return rest[:at], part, err == nil
}

func (s RecordingStore) meta(id string, part int) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: s.k.opts.Namespace, Name: recordingName(id, part), Labels: recordingLabels()}
}

// recordingData is the content of a part.
type recordingData struct {
	Text string `json:"text"`
}

// Put implements recording.Store.
func (s RecordingStore) Put(ctx context.Context, id string, part int, text []byte) error {
	raw, err := json.Marshal(recordingData{string(text)})
	if err != nil {
		return err
	}
	r := &appsv1.ControllerRevision{ObjectMeta: s.meta(id, part), Revision: int64(part), Data: runtime.RawExtension{Raw: raw}}
	r.Annotations = map[string]string{objectmeta.Bytes: strconv.Itoa(len(text))}
	err = s.k.client.Create(ctx, r, client.FieldOwner(objectmeta.FieldManager))
	if apierrors.IsAlreadyExists(err) { // the answer to an earlier try was lost
		return nil
	}
	return err
}

// Get implements recording.Store.
func (s RecordingStore) Get(ctx context.Context, id string, part int) ([]byte, error) {
	r := &appsv1.ControllerRevision{ObjectMeta: s.meta(id, part)}
	if err := s.k.client.Get(ctx, client.ObjectKeyFromObject(r), r); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	var data recordingData
	if err := json.Unmarshal(r.Data.Raw, &data); err != nil {
		return nil, fmt.Errorf("ControllerRevision %s is not part of a recording: %w", r.Name, err)
	}
	return []byte(data.Text[:min(len(data.Text), recording.MaxPart)]), nil
}

// List implements recording.Store.
func (s RecordingStore) List(ctx context.Context) ([]recording.Entry, error) {
	found := map[string]*recording.Entry{}
	err := s.each(ctx, func(o metav1.PartialObjectMetadata, id string, part int) error {
		e := found[id]
		if e == nil {
			e = &recording.Entry{ID: id}
			found[id] = e
		}
		bytes, err := strconv.ParseInt(o.Annotations[objectmeta.Bytes], 10, 64)
		if err != nil || bytes < 0 || bytes > recording.MaxPart {
			bytes = recording.MaxPart // another client has changed it
		}
		e.Add(part, bytes)
		return nil
	})
	all := make([]recording.Entry, 0, len(found))
	for _, e := range found {
		all = append(all, *e)
	}
	slices.SortFunc(all, func(a, b recording.Entry) int { return strings.Compare(a.ID, b.ID) })
	return all, err
}

// Delete implements recording.Store.
func (s RecordingStore) Delete(ctx context.Context, id string) error {
	return s.each(ctx, func(o metav1.PartialObjectMetadata, of string, part int) error {
		if of != id {
			return nil
		}
		return client.IgnoreNotFound(s.k.client.Delete(ctx, &appsv1.ControllerRevision{ObjectMeta: s.meta(of, part)}))
	})
}

// each calls do for each stored part.
func (s RecordingStore) each(ctx context.Context, do func(o metav1.PartialObjectMetadata, id string, part int) error) error {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("ControllerRevisionList"))
	return s.k.pages(ctx, list, func(client.ObjectList) error {
		for _, o := range list.Items {
			id, part, ok := recordingPart(o.Name)
			if !ok {
				continue
			}
			if err := do(o, id, part); err != nil {
				return err
			}
		}
		return nil
	}, client.InNamespace(s.k.opts.Namespace), client.MatchingLabels(recordingLabels()))
}

// String implements recording.Store.
func (s RecordingStore) String() string {
	return "controller revisions of namespace " + s.k.opts.Namespace
}
