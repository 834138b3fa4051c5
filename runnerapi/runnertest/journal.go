package runnertest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"sync"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
)

// kept is a record of the journal with what it was made from.
type kept struct {
	backend.Record
	content string
}

// fakeJournal is a server.Journal that forgets with the process.
type fakeJournal struct {
	mu   sync.Mutex
	kept map[string]kept
}

// Claim implements backend.Journal.
func (j *fakeJournal) Claim(_ context.Context, c backend.Claim) (backend.Record, bool, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	sum := sha256.Sum256([]byte(c.Caller.Runner + " " + c.Key))
	id, content := hex.EncodeToString(sum[:13]), c.Method+c.Path+string(c.Body)
	if earlier, ok := j.kept[id]; ok {
		if earlier.content != content {
			return backend.Record{}, false, backend.KeyReused()
		}
		return earlier.Record, true, nil
	}
	r := backend.Record{ID: id, Command: c.Command, Target: c.Target, Caller: c.Caller, StartedAt: epoch}
	j.kept[id] = kept{r, content}
	return r, false, nil
}

// Finish implements backend.Journal.
func (j *fakeJournal) Finish(_ context.Context, r backend.Record) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if before := j.kept[r.ID]; !before.Done {
		j.kept[r.ID] = kept{r, before.content}
	}
	return nil
}

// Release implements backend.Journal.
func (j *fakeJournal) Release(_ context.Context, id string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.kept, id)
	return nil
}

// Find implements backend.Journal.
func (j *fakeJournal) Find(_ context.Context, id string) (backend.Record, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	r, ok := j.kept[id]
	if !ok {
		return r.Record, notFound("operation", id)
	}
	return r.Record, nil
}

// GetLive implements backend.Outcomes.
func (b *FakeBackend) GetLive(ctx context.Context, key runnerapi.Key) (runnerapi.App, error) {
	return b.read(ctx, "GetLive", key)
}

// Outcome implements backend.Outcomes.
func (b *FakeBackend) Outcome(_ context.Context, r backend.Record) (runnerapi.Outcome, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	app, err := b.get(r.Target)
	switch {
	case r.App == nil && err != nil:
		return runnerapi.Outcome{State: runnerapi.OperationSucceeded}, nil
	case err != nil || app.Generation > r.App.Generation:
		return runnerapi.Outcome{State: runnerapi.OperationSuperseded}, nil
	case !app.Settled():
		return runnerapi.Outcome{State: runnerapi.OperationPending}, nil
	case app.Status.Diagnosis != nil:
		return runnerapi.Outcome{State: runnerapi.OperationFailed, Diagnosis: app.Status.Diagnosis}, nil
	}
	return runnerapi.Outcome{State: runnerapi.OperationSucceeded}, nil
}
