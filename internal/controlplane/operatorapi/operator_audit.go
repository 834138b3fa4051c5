package operatorapi

import (
	"context"
	"encoding/json"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/audit"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// OperatorAuditInput selects calls in the operators' audit log.
type OperatorAuditInput struct{ runnerapi.AuditFilter }

// OperatorAudit is what was found in the operators' audit log.
type OperatorAudit struct {
	Items   []OperatorRecord    `json:"items" nullable:"false"`
	Head    runnerapi.AuditHead `json:"head" doc:"The end of the whole log."`
	Older   int64               `json:"older,omitempty" doc:"Give it as before to search older records; absent if there are none."`
	Scanned int                 `json:"scanned,omitempty" doc:"How many records were read: 5000 at most, whether the limit was reached or not."`
}

// Calls returns the list as those of agents are.
func (l OperatorAudit) Calls() runnerapi.AuditList {
	list := runnerapi.AuditList{Head: l.Head, Older: l.Older, Scanned: l.Scanned, Items: make([]runnerapi.AuditCall, len(l.Items))}
	for i, r := range l.Items {
		list.Items[i] = r.Call()
	}
	return list
}

// OperatorRecord is what an operator did, or was refused.
type OperatorRecord struct {
	Seq         int64                  `json:"seq"`
	Began       int64                  `json:"began,omitempty" doc:"Number of the record with which the call began, if it has two."`
	Time        time.Time              `json:"time" doc:"When the call came."`
	Operator    string                 `json:"operator" doc:"Name of the operator; local/USER for a command on the control plane's machine; openid/NAME for a person who signed in by OpenID Connect, and openid for an unknown one who was refused; agent/ID or runner/NAME for a certificate that is not an operator's, and for an exchange of a Runner's ID token."`
	Certificate string                 `json:"certificate,omitempty" doc:"Serial number in hexadecimal."`
	RequestID   string                 `json:"requestId,omitempty"`
	Command     string                 `json:"command" doc:"The call's operationId."`
	Name        string                 `json:"name,omitempty" doc:"What the call was about."`
	Arguments   json.RawMessage        `json:"arguments,omitempty" doc:"What was sent, without secrets."`
	Outcome     runnerapi.AuditOutcome `json:"outcome" enum:"begun,done,refused,failed" doc:"begun for a call that has not ended."`
	Status      int                    `json:"status,omitempty"`
	Code        problem.Code           `json:"code,omitempty"`
	Message     string                 `json:"message,omitempty"`
	Millis      int64                  `json:"durationMs" doc:"How long the call took, in milliseconds."`
	Lost        int64                  `json:"lost,omitempty" doc:"Records before this one that could not be kept."`
	Prev        string                 `json:"prev"`
	Hash        string                 `json:"hash"`
}

// Call returns the record as those of agents are.
func (r OperatorRecord) Call() runnerapi.AuditCall {
	return runnerapi.AuditCall{Began: r.Began, AuditRecord: runnerapi.AuditRecord{
		Seq: r.Seq, Time: r.Time, Runner: r.Operator, Certificate: r.Certificate, RequestID: r.RequestID, Command: r.Command, Name: r.Name,
		Arguments: r.Arguments, Outcome: r.Outcome, Status: r.Status, Code: r.Code, Message: r.Message, Millis: r.Millis, Lost: r.Lost, Prev: r.Prev, Hash: r.Hash,
	}}
}

// OperatorRecordOf is the reverse of Call.
func OperatorRecordOf(c runnerapi.AuditCall) OperatorRecord {
	return OperatorRecord{
		Seq: c.Seq, Began: c.Began, Time: c.Time, Operator: c.Runner, Certificate: c.Certificate, RequestID: c.RequestID, Command: c.Command,
		Name: c.Name, Arguments: c.Arguments, Outcome: c.Outcome, Status: c.Status, Code: c.Code, Message: c.Message,
		Millis: c.Millis, Lost: c.Lost, Prev: c.Prev, Hash: c.Hash,
	}
}

func getOperatorAudit(ctx context.Context, a *administration.Admin, in *OperatorAuditInput) (OperatorAudit, error) {
	found, err := audit.Search(ctx, auditStore{a.Database()}, in.AuditFilter, nil)
	list := OperatorAudit{Items: make([]OperatorRecord, len(found.Items)), Head: found.Head, Older: found.Older, Scanned: found.Scanned}
	for i, c := range found.Items {
		list.Items[i] = OperatorRecordOf(c)
	}
	return list, err
}
