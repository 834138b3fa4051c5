package runnertest

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// JoinToken is the fake's, marked so that it can be searched for.
const JoinToken = "K10join-token-of-the-fake"

// JoinCommand implements backend.Nodes.
func (b fakeNodes) JoinCommand(ctx context.Context) (runnerapi.JoinCommand, error) {
	if err := b.enter(ctx, Call{Verb: "Nodes.JoinCommand"}); err != nil {
		return runnerapi.JoinCommand{}, err
	}
	return runnerapi.JoinCommand{Server: "https://192.0.2.10:6443", Command: `bash join-worker.sh https://192.0.2.10:6443 - <<<"$K3S_TOKEN"`}, nil
}

// JoinToken implements backend.Nodes.
func (b fakeNodes) JoinToken(ctx context.Context) (runnerapi.JoinToken, error) {
	if err := b.enter(ctx, Call{Verb: "Nodes.JoinToken"}); err != nil {
		return runnerapi.JoinToken{}, err
	}
	return runnerapi.JoinToken{Token: JoinToken}, nil
}
