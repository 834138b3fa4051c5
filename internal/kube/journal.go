package kube

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
)

const (
	recordPrefix = "op-"
	// sweepEvery is after how many commands old records are swept: no timer runs while there are no
	// commands.
	sweepEvery = 64
	// maxRecord bounds what is read of a record that any client may have edited.
	maxRecord = 256 << 10
)

var recordID = base32.StdEncoding.WithPadding(base32.NoPadding)

// Journal implements backend.Journal. Each command is a separate object, a ControllerRevision
// in the agent's namespace. Creating it is the claim, which only one replica wins. Its immutable
// data holds the claim, and an annotation the answer. A ConfigMap would do the same, but the right
// to write ConfigMaps would include the cluster owner's policy.
type Journal struct {
	*Client
	claims atomic.Uint64
	now    func() time.Time
}

var _ backend.Journal = (*Journal)(nil)

// Journal returns the journal in the agent's namespace.
func (k *Client) Journal() *Journal { return &Journal{Client: k, now: time.Now} }

// claimed is the content of a record from its creation.
type claimed struct {
	backend.Record
	Fingerprint string `json:"fingerprint"` // keyed, so it reveals nothing of what was sent
	fresh       bool   // this claim created it
}

// Claim implements backend.Journal.
func (j *Journal) Claim(ctx context.Context, c backend.Claim) (backend.Record, bool, error) {
	key, err := j.digests.read(ctx)
	if err != nil {
		return backend.Record{}, false, kubeproblem.From(err, "reading the key of the digests")
	}
	id := strings.ToLower(recordID.EncodeToString(keyed(key, "id", c.Caller.Runner, c.Key)[:16]))
	mine := claimed{
		Record:      backend.Record{ID: id, Command: c.Command, Target: c.Target, Caller: c.Caller, StartedAt: j.now().UTC()},
		Fingerprint: hex.EncodeToString(keyed(key, "content", c.Method, c.Path, string(c.Body))),
	}
	j.sweepSometimes(ctx)
	for range 3 {
		known, err := j.claim(ctx, mine)
		if known != nil || err != nil {
			return j.answerClaim(mine, known, err)
		}
	}
	return backend.Record{}, false, problem.Errorf(problem.Busy, "send it again", "the same command is being sent several times at once")
}

// answerClaim distinguishes the three results of a claim.
func (j *Journal) answerClaim(mine claimed, known *claimed, err error) (backend.Record, bool, error) {
	switch {
	case err != nil:
		return backend.Record{}, false, kubeproblem.From(err, "noting the command")
	case known.Fingerprint != mine.Fingerprint:
		return backend.Record{}, false, backend.KeyReused()
	}
	return known.Record, !known.fresh, nil
}

// claim creates the record, or returns the existing one. If it returns neither, an old record was
// in the way and is now gone.
func (j *Journal) claim(ctx context.Context, mine claimed) (*claimed, error) {
	raw, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	r := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: j.opts.Namespace, Name: recordPrefix + mine.ID, Labels: recordLabels(),
			Annotations: map[string]string{objectmeta.Runner: mine.Caller.Runner},
		},
		Revision: 1, Data: runtime.RawExtension{Raw: raw},
	}
	err = j.client.Create(ctx, r, client.FieldOwner(objectmeta.FieldManager))
	if !apierrors.IsAlreadyExists(err) {
		mine.fresh = true
		return &mine, err
	}
	have, err := j.read(ctx, mine.ID)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if j.now().Sub(have.CreationTimestamp.Time) <= backend.JournalAge {
		return decodeRecord(have)
	}
	return nil, client.IgnoreNotFound(j.client.Delete(ctx, have, client.Preconditions{UID: &have.UID}))
}

func recordLabels() map[string]string {
	return map[string]string{objectmeta.ManagedBy: objectmeta.ManagedByAgent, objectmeta.Operation: "record"}
}

// keyed returns a digest of several texts that reveals nothing without the key.
func keyed(key []byte, parts ...string) []byte {
	mac := hmac.New(sha256.New, key)
	for _, part := range parts {
		frame(mac, []byte(part))
	}
	return mac.Sum(nil)
}

func (j *Journal) read(ctx context.Context, id string) (*appsv1.ControllerRevision, error) {
	r := &appsv1.ControllerRevision{}
	return r, j.client.Get(ctx, client.ObjectKey{Namespace: j.opts.Namespace, Name: recordPrefix + id}, r)
}

// decodeRecord decodes a record, finished or not.
func decodeRecord(r *appsv1.ControllerRevision) (*claimed, error) {
	c := &claimed{}
	end := r.Annotations[objectmeta.Operation]
	if len(r.Data.Raw)+len(end) > maxRecord {
		return nil, fmt.Errorf("controller revision %s/%s has more than %d bytes: delete it", r.Namespace, r.Name, maxRecord)
	}
	if err := json.Unmarshal(r.Data.Raw, c); err != nil {
		return nil, fmt.Errorf("controller revision %s/%s makes no sense (delete it): %w", r.Namespace, r.Name, err)
	}
	if end != "" {
		if err := json.Unmarshal([]byte(end), &c.Record); err != nil {
			return nil, fmt.Errorf("controller revision %s/%s makes no sense (delete it): %w", r.Namespace, r.Name, err)
		}
	}
	return c, nil
}

// finished is the annotation with what became of a command, as JSON Pointer has it.
var finished = "/metadata/annotations/" + strings.ReplaceAll(objectmeta.Operation, "/", "~1")

// Finish implements backend.Journal. What another replica has noted stands: by now, this one may
// have found the App as a later command left it.
func (j *Journal) Finish(ctx context.Context, record backend.Record) error {
	end, err := json.Marshal(record)
	if err != nil {
		return err
	}
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": finished, "value": nil}, {"op": "add", "path": finished, "value": string(end)},
	})
	if err != nil {
		return err
	}
	r := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: j.opts.Namespace, Name: recordPrefix + record.ID}}
	err = retry.OnError(retry.DefaultBackoff, Passing, func() error {
		return j.client.Patch(ctx, r, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(objectmeta.FieldManager))
	})
	if apierrors.IsInvalid(err) { // the test
		return nil
	}
	return err
}

// Release implements backend.Journal. A command that another replica carried out, while this one
// was held, is not forgotten.
func (j *Journal) Release(ctx context.Context, id string) error {
	r, err := j.read(ctx, id)
	if err != nil || r.Annotations[objectmeta.Operation] != "" {
		return client.IgnoreNotFound(err)
	}
	err = j.client.Delete(ctx, r, client.Preconditions{UID: &r.UID, ResourceVersion: &r.ResourceVersion})
	if apierrors.IsConflict(err) { // it was finished just now
		return nil
	}
	return client.IgnoreNotFound(err)
}

// Find implements backend.Journal.
func (j *Journal) Find(ctx context.Context, id string) (backend.Record, error) {
	r, err := j.read(ctx, id)
	if apierrors.IsNotFound(err) {
		return backend.Record{}, problem.Errorf(problem.NotFound, "operations are kept for a day; ask for the App itself",
			"there is no operation %s (any more)", id)
	}
	var c *claimed
	if err == nil {
		c, err = decodeRecord(r)
	}
	if err != nil {
		return backend.Record{}, kubeproblem.From(err, "reading operation "+id)
	}
	return c.Record, nil
}

// sweepSometimes bounds the journal. The next sweep makes up for one that fails: the command that
// is about to be recorded must not fail because of it.
func (j *Journal) sweepSometimes(ctx context.Context) {
	if j.claims.Add(1)%sweepEvery != 1 {
		return
	}
	if err := j.sweep(ctx); err != nil {
		j.opts.Log.Warn().Err(err).Msg("failed to remove old operations; retrying later")
	}
}

// sweep deletes the records that are not kept.
func (j *Journal) sweep(ctx context.Context) error {
	var all []kept
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("ControllerRevisionList"))
	err := j.pages(ctx, list, func(client.ObjectList) error {
		for _, r := range list.Items {
			all = append(all, kept{r.Name, r.UID, r.Annotations[objectmeta.Runner], r.CreationTimestamp.Time})
		}
		return nil
	}, client.InNamespace(j.opts.Namespace), client.MatchingLabels(recordLabels()))
	if err != nil {
		return err
	}
	for _, r := range surplus(all, backend.JournalSize, j.now().Add(-backend.JournalAge)) {
		o := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: j.opts.Namespace, Name: r.name}}
		if err := client.IgnoreNotFound(j.client.Delete(ctx, o, client.Preconditions{UID: &r.uid})); err != nil && !apierrors.IsConflict(err) {
			return err
		}
	}
	return nil
}
