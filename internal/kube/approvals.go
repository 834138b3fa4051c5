package kube

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
)

const (
	approvalPrefix = "approval-"
	// maxApprovals is how many commands may wait for an approval, of one Runner and of all.
	maxApprovals, maxApprovalsPerRunner = 256, 32
)

// Approvals implements backend.Approvals. A command that waits is a ControllerRevision in the
// agent's namespace, whose data the API server lets no client change. The cluster's owner approves
// it by an annotation. The agent uses an approval by deleting the object, which succeeds once.
type Approvals struct {
	*Journal
}

var _ backend.Approvals = Approvals{}

// Approvals returns the approvals in the agent's namespace.
func (k *Client) Approvals() Approvals { return Approvals{k.Journal()} }

// waiting is the content of such an object.
type waiting struct {
	runnerapi.Approval
	Fingerprint string `json:"fingerprint"` // keyed, so it reveals nothing of what was sent
}

func approvalLabels() map[string]string {
	return map[string]string{objectmeta.ManagedBy: objectmeta.ManagedByAgent, objectmeta.Operation: "approval"}
}

// Use implements backend.Approvals.
func (a Approvals) Use(ctx context.Context, asked backend.ApprovalRequest) (runnerapi.Approval, bool, error) {
	key, err := a.digests.read(ctx)
	if err != nil {
		return runnerapi.Approval{}, false, kubeproblem.From(err, "reading the key of the digests")
	}
	mine := waiting{asked.Approval, hex.EncodeToString(keyed(key, "approval", string(asked.Bytes)))}
	mine.ID = mine.Fingerprint[:16]
	for range 3 {
		approval, approved, err := a.use(ctx, mine)
		if apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			continue // another call was first
		}
		if err != nil {
			return runnerapi.Approval{}, false, kubeproblem.From(err, "reading the approval")
		}
		return approval, approved, nil
	}
	return runnerapi.Approval{}, false, problem.Errorf(problem.Busy, "send it again", "the same command is being sent several times at once")
}

// use looks for an approval once. It returns none that it could not take away.
func (a Approvals) use(ctx context.Context, mine waiting) (runnerapi.Approval, bool, error) {
	r, have, err := a.find(ctx, mine.ID)
	switch {
	case apierrors.IsNotFound(err):
		return a.asked(ctx, mine)
	case err != nil:
		return runnerapi.Approval{}, false, err
	case have.Fingerprint != mine.Fingerprint || !a.now().Before(have.Until):
		if err := a.remove(ctx, r); err != nil {
			return runnerapi.Approval{}, false, err
		}
		return a.asked(ctx, mine)
	case have.Approved == nil:
		return have.Approval, false, nil
	}
	if err := a.remove(ctx, r); err != nil {
		return runnerapi.Approval{}, false, err
	}
	return have.Approval, true, nil
}

// asked stores a command that waits, and returns that it is not approved.
func (a Approvals) asked(ctx context.Context, mine waiting) (runnerapi.Approval, bool, error) {
	if err := a.ask(ctx, mine); err != nil {
		return runnerapi.Approval{}, false, err
	}
	return mine.Approval, false, nil
}

// remove deletes the object as it was read.
func (a Approvals) remove(ctx context.Context, r *appsv1.ControllerRevision) error {
	return a.client.Delete(ctx, r, client.Preconditions{UID: &r.UID, ResourceVersion: &r.ResourceVersion})
}

// ask stores a command that waits.
func (a Approvals) ask(ctx context.Context, mine waiting) error {
	if err := a.makeRoom(ctx, mine.Runner); err != nil {
		return err
	}
	mine.Approved = nil
	raw, err := json.Marshal(mine)
	if err != nil {
		return err
	}
	return a.client.Create(ctx, &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.opts.Namespace, Name: approvalPrefix + mine.ID, Labels: approvalLabels()},
		Revision:   1, Data: runtime.RawExtension{Raw: raw},
	}, client.FieldOwner(objectmeta.FieldManager))
}

// makeRoom removes what has expired, and refuses a command if too many wait.
func (a Approvals) makeRoom(ctx context.Context, runner string) error {
	total, own := 0, 0
	err := a.each(ctx, func(r *appsv1.ControllerRevision, w waiting) error {
		if !a.now().Before(w.Until) {
			return client.IgnoreNotFound(a.remove(ctx, r))
		}
		total++
		if w.Runner == runner {
			own++
		}
		return nil
	})
	if err == nil && (total >= maxApprovals || own >= maxApprovalsPerRunner) {
		return problem.Errorf(problem.TooManyRequests, "wait until the owner of the cluster has decided about others, or they expire",
			"%d commands of this Runner wait for an approval, and %d of all", own, total).WithRetryAfter(time.Minute)
	}
	return err
}

// List returns the commands that wait or are approved, and have not expired, in their order.
func (a Approvals) List(ctx context.Context) ([]runnerapi.Approval, error) {
	all := []runnerapi.Approval{}
	err := a.each(ctx, func(_ *appsv1.ControllerRevision, w waiting) error {
		if a.now().Before(w.Until) {
			all = append(all, w.Approval)
		}
		return nil
	})
	slices.SortFunc(all, func(x, y runnerapi.Approval) int { return x.Asked.Compare(y.Asked) })
	return all, err
}

// Approve approves a command that waits.
func (a Approvals) Approve(ctx context.Context, id string) (runnerapi.Approval, error) {
	r, w, err := a.find(ctx, id)
	if apierrors.IsNotFound(err) || err == nil && !a.now().Before(w.Until) {
		return runnerapi.Approval{}, fmt.Errorf("there is no request %.64q, or it has expired (fix: use an ID that `pipeops-agent approvals` lists)", id)
	}
	if err != nil {
		return runnerapi.Approval{}, err
	}
	if w.Approved != nil {
		return w.Approval, nil
	}
	before := r.DeepCopy()
	at := a.now().UTC()
	metav1.SetMetaDataAnnotation(&r.ObjectMeta, objectmeta.Approved, at.Format(time.RFC3339))
	w.Approved = &at
	if err := a.client.Patch(ctx, r, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(objectmeta.FieldManager)); err != nil {
		return runnerapi.Approval{}, err
	}
	return w.Approval, nil
}

// find reads one, with what its owner has decided.
func (a Approvals) find(ctx context.Context, id string) (*appsv1.ControllerRevision, waiting, error) {
	r := &appsv1.ControllerRevision{}
	if err := a.client.Get(ctx, client.ObjectKey{Namespace: a.opts.Namespace, Name: approvalPrefix + id}, r); err != nil {
		return nil, waiting{}, err
	}
	w, err := decodeWaiting(r)
	if err != nil {
		return nil, waiting{}, err
	}
	return r, w, nil
}

// decodeWaiting takes the approval from the annotation alone.
func decodeWaiting(r *appsv1.ControllerRevision) (waiting, error) {
	var w waiting
	if len(r.Data.Raw) > maxRecord {
		return waiting{}, fmt.Errorf("ControllerRevision %s is too large for a request for an approval", r.Name)
	}
	if err := json.Unmarshal(r.Data.Raw, &w); err != nil {
		return waiting{}, fmt.Errorf("ControllerRevision %s is not a request for an approval: %w", r.Name, err)
	}
	w.Approved = nil
	if text, there := r.Annotations[objectmeta.Approved]; there {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return waiting{}, fmt.Errorf("ControllerRevision %s: annotation %s is not a time: %w", r.Name, objectmeta.Approved, err)
		}
		w.Approved = &at
	}
	return w, nil
}

// each calls do for each stored request. It leaves out what another client stored under the label.
func (a Approvals) each(ctx context.Context, do func(*appsv1.ControllerRevision, waiting) error) error {
	list := &appsv1.ControllerRevisionList{}
	return a.pages(ctx, list, func(client.ObjectList) error {
		for i := range list.Items {
			w, err := decodeWaiting(&list.Items[i])
			if err != nil {
				continue
			}
			if err := do(&list.Items[i], w); err != nil {
				return err
			}
		}
		return nil
	}, client.InNamespace(a.opts.Namespace), client.MatchingLabels(approvalLabels()))
}
