package runnerapi

import (
	"context"
)

// WriteOptions apply to every write.
type WriteOptions struct {
	// DryRun runs all of the cluster's checks and changes nothing.
	DryRun bool
	// Adopt lets a deploy take over objects with the App's names that were created by other means
	// and that have no other owner.
	Adopt bool
	// Generation is that of the App from which the new spec was made: a deploy is refused with
	// CodeChanged if the App has another one. 0 is for any.
	Generation int64
	// Revision is that of the Helm release from which the new spec was made: a deploy is refused
	// with CodeChanged if the release has another one. 0 is for any.
	Revision int
	// Digest is that of the Secret or ConfigMap from which the new content was made: a write is
	// refused with CodeChanged if the content is another one. It is empty for any.
	Digest string
	// IdempotencyKey is the caller's name for this command, or empty.
	IdempotencyKey string
	// Command identifies this command. It stays the same wherever and however often the command is
	// carried out, and differs if the key is used for another command. It is empty if the command
	// cannot be recognized later.
	Command string
	// Caller is the sender of the command.
	Caller Caller
	// Commit is the commit of the Git source from which an App's spec was taken. It is empty for a
	// spec that a Runner sent.
	Commit string
	// Admit, if set, checks a spec that the command uses without having it in its body: a
	// revision's, or one that keeps parts of the App. The command returns its refusal.
	Admit func(AppSpec) error `json:"-"`
	// Answered, if set, reports whether another replica of the agent has answered this command in
	// the meantime: see Late.
	Answered func(context.Context) (bool, error) `json:"-"`
}

// Late reports whether a command must be skipped because another replica carried it out and
// answered it while this replica held it. A command that deletes calls Late after it has read the
// object that it is about to delete, and then deletes that object by its UID. So it never deletes
// an object that was created after the command was answered. The note that identifies repeated
// commands was deleted with the object.
func (o WriteOptions) Late(ctx context.Context) (bool, error) {
	if o.Answered == nil || o.DryRun {
		return false, nil
	}
	return o.Answered(ctx)
}

// Caller is the sender of a command.
type Caller struct {
	Runner    string // the name in the Runner's certificate
	Actor     string // who acts as the Runner; empty for the Runner itself
	RequestID string // the Request-Id of the call
}
