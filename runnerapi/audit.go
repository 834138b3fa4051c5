package runnerapi

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	kjson "sigs.k8s.io/json"

	"github.com/pipeops/pipeops-vm-agent/internal/printable"
)

// MaxAuditLine bounds one stored record of the audit log, in bytes.
const MaxAuditLine = 8 << 10

// AuditOutcome is how a call ended.
type AuditOutcome string

// The outcomes of a call. The outcome of a rollout that a command started is in its operation.
const (
	AuditBegun   AuditOutcome = "begun"   // what ends with another record: a stream of the Kubernetes API; a recorded session; any command, where the policy requires audit
	AuditDone    AuditOutcome = "done"    // carried out, or taken and going on
	AuditRefused AuditOutcome = "refused" // not allowed, or not possible as it was sent
	AuditFailed  AuditOutcome = "failed"  // tried in vain
)

// AuditConnect is the command in a record of a Runner that was not admitted: the TLS handshake
// failed, or the connection was cut later.
const AuditConnect = "connect"

// AuditOwner is the Runner in records of what the cluster's owner did. No Runner can have this
// name.
const AuditOwner = "(owner)"

// AuditRecord is one command of a Runner, or the refusal of a call that is not a command. Records
// are chained: each contains the hash of the record before it.
type AuditRecord struct {
	Seq         int64           `json:"seq" doc:"Number of the record, one more than that of the one before."`
	Prev        string          `json:"prev" doc:"Hash of the record before; empty in the first."`
	Time        time.Time       `json:"time" doc:"When the call came."`
	Replica     string          `json:"replica" doc:"Replica of the agent that took the call."`
	Runner      string          `json:"runner" doc:"Name in the certificate of the Runner that sent it; empty where the certificate proves no name."`
	Certificate string          `json:"certificate,omitempty" doc:"Serial number of that certificate, in hexadecimal."`
	Actor       string          `json:"actor,omitempty" doc:"Who acted as the Runner: an operator of the control plane, in the console, or oidc/ and the claims of the ID token for which the Runner got its certificate."`
	RequestID   string          `json:"requestId"`
	Command     string          `json:"command" doc:"The call, by its operationId in the API's document; connect for a Runner that was not let in at all." example:"put-app"`
	Namespace   string          `json:"namespace,omitempty"`
	Name        string          `json:"name,omitempty"`
	Arguments   json.RawMessage `json:"arguments,omitempty" doc:"What was sent, without what may be secret."`
	Outcome     AuditOutcome    `json:"outcome" enum:"begun,done,refused,failed"`
	Status      int             `json:"status" doc:"HTTP status of the answer; 0 where there was none."`
	Code        Code            `json:"code,omitempty" doc:"Code of the refusal."`
	Message     string          `json:"message,omitempty" doc:"Which rule of the policy refused it, or why a connection was refused."`
	Operation   string          `json:"operation,omitempty" doc:"For GET /v1/operations/{id}."`
	Recording   string          `json:"recording,omitempty" doc:"The recording of the session: pipeops-agent recording get ID."`
	Approval    string          `json:"approval,omitempty" doc:"The owner of the cluster approved the command: ID of the request."`
	Millis      int64           `json:"durationMs" doc:"How long the call took, in milliseconds."`
	Lost        int64           `json:"lost,omitempty" doc:"Records before this one that could not be kept."`

	Hash string `json:"hash,omitempty" doc:"SHA-256 of the record as it is kept, which is without this. Only in answers."`
}

// By returns who sent the command: the Runner, and who acted as it.
func (r AuditRecord) By() string { return by(r.Runner, r.Actor) }

func by(runner, actor string) string {
	if actor == "" {
		return runner
	}
	return runner + " (" + actor + ")"
}

// OwnersAlone reports whether no Runner may see the record: the cluster's owner did something in no
// namespace, or has put the rule into the policy that the arguments are.
func (r AuditRecord) OwnersAlone() bool {
	return r.Runner == AuditOwner && (r.Namespace == "" || len(r.Arguments) > 0)
}

// KubernetesCall returns the verb and path of a request to the Kubernetes API, and an empty string
// for other calls.
func (r AuditRecord) KubernetesCall() string {
	var args struct{ Verb, Path string }
	if r.Command != KubernetesCall || json.Unmarshal(r.Arguments, &args) != nil {
		return ""
	}
	return strings.TrimSpace(args.Verb + " " + args.Path)
}

// AuditHash returns the hash of a stored record.
func AuditHash(line []byte) string {
	sum := sha256.Sum256(line)
	return hex.EncodeToString(sum[:])
}

// DecodeAuditRecord decodes a stored record. It ignores unknown fields, which come from a newer
// agent.
func DecodeAuditRecord(line []byte) (AuditRecord, error) {
	var r AuditRecord
	if len(line) > MaxAuditLine {
		return r, fmt.Errorf("the record has more than %d bytes", MaxAuditLine)
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(line, &r); err != nil {
		return AuditRecord{}, fmt.Errorf("the record makes no sense: %w", err)
	}
	if r.Seq < 1 || r.Hash != "" {
		return AuditRecord{}, fmt.Errorf("the record makes no sense: it has number %d and hash %q", r.Seq, printable.Clip(r.Hash))
	}
	return r, nil
}
