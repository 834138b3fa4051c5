package runnerapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	kjson "sigs.k8s.io/json"
)

// MaxAuditLine bounds one record of the audit log as it is kept, in bytes.
const MaxAuditLine = 8 << 10

// Auditor keeps the audit log.
type Auditor interface {
	// Record adds what a Runner did. It does not wait until it is kept.
	Record(AuditRecord)
	// Keep adds a record and waits until it is kept, durably, or ctx ends.
	Keep(context.Context, AuditRecord) error
	// Audit reads what is kept, after a number, oldest first; limit is how many at
	// most. A negative number is for the last ones.
	Audit(ctx context.Context, after int64, limit int) (AuditList, error)
}

// AuditOutcome is how a call ended.
type AuditOutcome string

// The outcomes of a call. What became of the rollout that a command started is
// told by its operation.
const (
	AuditBegun   AuditOutcome = "begun"   // what ends with another record: a stream of the Kubernetes API; any command, where the policy requires audit
	AuditDone    AuditOutcome = "done"    // carried out, or taken and going on
	AuditRefused AuditOutcome = "refused" // not allowed, or not possible as it was sent
	AuditFailed  AuditOutcome = "failed"  // tried in vain
)

// AuditConnect is the command of a record that a Runner was not let in: it got no
// further than the handshake of TLS, or was cut off later.
const AuditConnect = "connect"

// AuditRecord is one command of a Runner, or a refusal of a call that is none.
// Records are chained: each has the hash of the one before.
type AuditRecord struct {
	Seq         int64           `json:"seq" doc:"Number of the record, one more than that of the one before."`
	Prev        string          `json:"prev" doc:"Hash of the record before; empty in the first."`
	Time        time.Time       `json:"time" doc:"When the call came."`
	Replica     string          `json:"replica" doc:"Replica of the agent that took the call."`
	Runner      string          `json:"runner" doc:"Who sent it, by his certificate; empty where that proves nobody."`
	Certificate string          `json:"certificate,omitempty" doc:"Serial number of that certificate, in hexadecimal."`
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
	Millis      int64           `json:"durationMs" doc:"How long the call took, in milliseconds."`
	Lost        int64           `json:"lost,omitempty" doc:"Records before this one that could not be kept."`

	Hash string `json:"hash,omitempty" doc:"SHA-256 of the record as it is kept, which is without this. Only in answers."`
}

// KubernetesCall is the verb and the path of a request to the Kubernetes API; of other calls it
// is empty.
func (r AuditRecord) KubernetesCall() string {
	var args struct{ Verb, Path string }
	if r.Command != KubernetesCall || json.Unmarshal(r.Arguments, &args) != nil {
		return ""
	}
	return strings.TrimSpace(args.Verb + " " + args.Path)
}

// AuditHead is the end of the log: whoever keeps one notices when the log is cut
// off before it, or made anew.
type AuditHead struct {
	Seq  int64  `json:"seq" doc:"Number of the last record; 0 for none."`
	Hash string `json:"hash" doc:"Its hash."`
}

// AuditList is a part of the log.
type AuditList struct {
	Items []AuditRecord `json:"items" nullable:"false" doc:"Oldest first."`
	Head  AuditHead     `json:"head" doc:"The end of the whole log."`
}

// AuditHash is the hash of a record as it is kept.
func AuditHash(line []byte) string {
	sum := sha256.Sum256(line)
	return hex.EncodeToString(sum[:])
}

// DecodeAuditRecord reads a record as it is kept. Fields that it does not know
// are a newer agent's.
func DecodeAuditRecord(line []byte) (AuditRecord, error) {
	var r AuditRecord
	if len(line) > MaxAuditLine {
		return r, fmt.Errorf("the record has more than %d bytes", MaxAuditLine)
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(line, &r); err != nil {
		return AuditRecord{}, fmt.Errorf("the record makes no sense: %w", err)
	}
	if r.Seq < 1 || r.Hash != "" {
		return AuditRecord{}, fmt.Errorf("the record makes no sense: it has number %d and hash %q", r.Seq, clip(r.Hash))
	}
	return r, nil
}
