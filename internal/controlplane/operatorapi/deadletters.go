package operatorapi

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/publish"
)

// The calls about announcements that Runners could not process.
var (
	ListDeadLetters = Call[DeadLettersInput, DeadLetters]{
		Description{Method: "GET", Path: Prefix + "dead-letters", ID: "list-dead-letters", Role: administration.RoleViewer, Command: "dead-letter list",
			Summary: "List announcements that Runners could not process"}, listDeadLetters,
	}
	RequeueDeadLetters = Call[ChosenInput, Requeued]{
		Description{Method: "POST", Path: Prefix + "dead-letters/requeue", ID: "requeue-dead-letters", Role: administration.RoleOperator, Command: "dead-letter requeue",
			Summary: "Send dead letters to their Runners again"}, requeueDeadLetters,
	}
	DeleteDeadLetters = Call[ChosenInput, Dropped]{
		Description{Method: "POST", Path: Prefix + "dead-letters/delete", ID: "delete-dead-letters", Role: administration.RoleOperator, Command: "dead-letter delete",
			Summary: "Delete dead letters"}, dropDeadLetters,
	}
)

// DeadLettersInput bounds a list.
type DeadLettersInput struct {
	Limit int `query:"limit" minimum:"1" maximum:"10000" default:"100"`
}

// DeadLetters is a list, and how many there are.
type DeadLetters struct {
	Items []publish.DeadLetter `json:"items" nullable:"false"`
	Total int                  `json:"total"`
}

// ChosenInput selects dead letters.
type ChosenInput struct {
	Write
	Body ChosenBody
}

// ChosenBody selects dead letters.
type ChosenBody struct {
	IDs []string `json:"ids,omitempty" maxItems:"10000"`
	All bool     `json:"all,omitempty" doc:"All, instead of IDs."`
}

func (b *ChosenBody) chosen() (func(publish.DeadLetter) bool, error) {
	if b.All == (len(b.IDs) > 0) {
		return nil, problem.Errorf(problem.Invalid, "send IDs, or all", "dead letters are selected by IDs or by all").WithField("ids")
	}
	return publish.Chosen(b.IDs...), nil
}

// Requeued is what became of dead letters.
type Requeued struct {
	Sent   []publish.DeadLetter `json:"sent" nullable:"false"`
	Failed map[string]string    `json:"failed,omitempty" doc:"Why each of these IDs stays."`
}

// Dropped are the dead letters that are gone.
type Dropped struct {
	Dropped []publish.DeadLetter `json:"dropped" nullable:"false"`
}

func listDeadLetters(ctx context.Context, a *administration.Admin, in *DeadLettersInput) (DeadLetters, error) {
	letters, err := deadLetters(ctx, a)
	if err != nil {
		return DeadLetters{}, err
	}
	list, total, err := letters.List(ctx, in.Limit)
	items, err := listOf(list, err)
	return DeadLetters{items.Items, total}, err
}

// deadLetters returns access to the broker's dead letters.
func deadLetters(ctx context.Context, a *administration.Admin) (*publish.DeadLetters, error) {
	broker := a.Settings().Broker
	if len(broker.URLs) == 0 {
		return nil, problem.Errorf(problem.Conflict, "start `pipeops-controlplane serve` with --broker-url-file", "the control plane has no broker")
	}
	return a.DeadLetters(ctx, broker)
}

// picked returns the chosen dead letters, for a dry run.
func picked(ctx context.Context, letters *publish.DeadLetters, chosen func(publish.DeadLetter) bool) ([]publish.DeadLetter, error) {
	total, err := letters.Count(ctx)
	if err != nil || total == 0 {
		return []publish.DeadLetter{}, err
	}
	list, _, err := letters.List(ctx, total)
	some := []publish.DeadLetter{}
	for _, l := range list {
		if chosen(l) {
			some = append(some, l)
		}
	}
	return some, err
}

func requeueDeadLetters(ctx context.Context, a *administration.Admin, in *ChosenInput) (Requeued, error) {
	chosen, err := in.Body.chosen()
	if err != nil {
		return Requeued{}, err
	}
	letters, err := deadLetters(ctx, a)
	if err != nil {
		return Requeued{}, err
	}
	if a.IsDryRun() {
		some, err := picked(ctx, letters, chosen)
		return Requeued{Sent: some}, err
	}
	sent, failed, err := letters.Requeue(ctx, chosen)
	answer := Requeued{Sent: sent, Failed: map[string]string{}}
	if sent == nil {
		answer.Sent = []publish.DeadLetter{}
	}
	for id, why := range failed {
		answer.Failed[id] = why.Error()
	}
	return answer, err
}

func dropDeadLetters(ctx context.Context, a *administration.Admin, in *ChosenInput) (Dropped, error) {
	chosen, err := in.Body.chosen()
	if err != nil {
		return Dropped{}, err
	}
	letters, err := deadLetters(ctx, a)
	if err != nil {
		return Dropped{}, err
	}
	if a.IsDryRun() {
		some, err := picked(ctx, letters, chosen)
		return Dropped{some}, err
	}
	dropped, err := letters.Drop(ctx, chosen)
	items, err := listOf(dropped, err)
	return Dropped{items.Items}, err
}
