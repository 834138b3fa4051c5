package runnerapi

// JoinCommand describes how a machine becomes a worker of a k3s cluster.
type JoinCommand struct {
	Server  string `json:"server" doc:"URL of the k3s server." example:"https://192.0.2.10:6443"`
	Version string `json:"version,omitempty" doc:"Version of the server, where it is known: a worker may not be newer." example:"v1.35.2+k3s1"`
	Command string `json:"command" doc:"Line of shell for the machine that is to join, beside join-worker.sh. It reads the token from the variable K3S_TOKEN." example:"bash join-worker.sh https://192.0.2.10:6443 - <<<\"$K3S_TOKEN\""`
}

// JoinToken is the token with which machines join a k3s cluster. Anyone holding it can create a
// node, and can then read everything that the cluster gives to nodes.
type JoinToken struct {
	Token string `json:"token" doc:"For the variable K3S_TOKEN."`
}

// String keeps the token out of formatted output.
func (JoinToken) String() string { return "a token of k3s" }

// GoString keeps the token out of %#v.
func (t JoinToken) GoString() string { return t.String() }
