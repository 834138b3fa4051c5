package source

import (
	"context"
	"encoding/json"

	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// approvals is the commits that Runners have approved.
type approvals struct {
	Promotion string           `json:"promotion,omitempty"` // may be promoted
	Requests  map[int64]string `json:"requests,omitempty"`  // may have a preview, by the number of their requests
}

// approvals returns what is approved: nothing if others wrote the annotation.
func (o *object) approvals() approvals {
	var a approvals
	if json.Unmarshal([]byte(o.Annotations[objectmeta.Approvals]), &a) != nil {
		return approvals{}
	}
	return a
}

// ApprovePromotion implements backend.Sources.
func (k *Keeper) ApprovePromotion(ctx context.Context, key runnerapi.Key, approval runnerapi.CommitApproval, opts runnerapi.WriteOptions) (runnerapi.Source, error) {
	return k.approve(ctx, key, opts, func(o *object, a *approvals) error {
		a.Promotion = approval.Commit
		return o.mayPromote(approval.Commit)
	})
}

func (o *object) mayPromote(commit string) error {
	const see = "see what it waits for: pipeops-runner source get"
	p := o.Status.Promotion
	switch {
	case o.Spec.Promote == nil || !o.Spec.Promote.Approval:
		return problem.Errorf(problem.Conflict, "put it with promote.approval first: pipeops-runner source set --promote-from SOURCE --approval",
			"no promotion to source %s needs an approval", o.key())
	case p == nil || p.Candidate == "":
		return problem.Errorf(problem.Conflict, see, "no commit waits for its promotion to source %s", o.key())
	case p.Candidate != commit:
		return problem.Errorf(problem.Conflict, "look at this commit, and approve it", "commit %s waits for its promotion", p.Candidate).WithField("commit")
	}
	return nil
}

// approve keeps an approval on a source.
func (k *Keeper) approve(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions, add func(*object, *approvals) error) (runnerapi.Source, error) {
	o, err := k.update(ctx, key, opts, func(o *object) (bool, error) {
		a := o.approvals()
		if err := add(o, &a); err != nil {
			return false, err
		}
		text, err := json.Marshal(a)
		o.Annotations[objectmeta.Approvals] = string(text)
		return true, err
	})
	if err != nil {
		return runnerapi.Source{}, explain(err, key, "writing")
	}
	k.Wake()
	return o.wire(), nil
}
