package runnerapi

import "context"

// Joins is what the server needs for the calls about joining workers.
type Joins interface {
	// JoinCommand says how a machine joins the cluster. Where that is not k3s it is
	// NotSupported.
	JoinCommand(ctx context.Context) (JoinCommand, error)
	// JoinToken answers the token that the command needs.
	JoinToken(ctx context.Context) (JoinToken, error)
}

// JoinCommand is how a machine becomes a worker of a k3s cluster.
type JoinCommand struct {
	Server  string `json:"server" doc:"URL of the k3s server." example:"https://192.0.2.10:6443"`
	Version string `json:"version,omitempty" doc:"Version of the server, where it is known: a worker may not be newer." example:"v1.35.2+k3s1"`
	Command string `json:"command" doc:"Line of shell for the machine that is to join, beside join-worker.sh. It reads the token from the variable K3S_TOKEN." example:"bash join-worker.sh https://192.0.2.10:6443 - <<<\"$K3S_TOKEN\""`
}

// JoinToken is the token with which machines join a k3s cluster. Whoever has it can make a
// node, and with that read what the cluster gives to nodes.
type JoinToken struct {
	Token string `json:"token" doc:"For the variable K3S_TOKEN."`
}

// String keeps it out of whatever prints it.
func (JoinToken) String() string { return "a token of k3s" }

// GoString keeps it out of %#v as well.
func (t JoinToken) GoString() string { return t.String() }
