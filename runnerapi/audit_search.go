package runnerapi

import "encoding/json"

// AuditFilter selects calls in an audit log. A zero field selects all. The tags are those of
// parameters in an address.
type AuditFilter struct {
	By        string       `query:"by" maxLength:"256" doc:"Part of the name of who sent the call: a Runner or an operator."`
	Command   string       `query:"command" maxLength:"256" doc:"Part of the call's operationId." example:"put-app"`
	Namespace string       `query:"namespace" maxLength:"256" doc:"Namespace of what the call is about."`
	App       string       `query:"app" maxLength:"256" doc:"Part of NAMESPACE/NAME of the App, or of what else the call is about." example:"production/web"`
	Outcome   AuditOutcome `query:"outcome" enum:"begun,done,refused,failed" doc:"How the call ended; begun for a call that has not ended."`
	Text      string       `query:"text" maxLength:"256" doc:"Part of the arguments, the message, the code, or of an ID or number that identifies the call, its certificate, operation, recording or approval."`
	Since     string       `query:"since" maxLength:"40" doc:"Only calls that came at this time or later: a duration before now, such as 2h or 7d, a date, or a time (RFC 3339)." example:"2h"`
	Until     string       `query:"until" maxLength:"40" doc:"Only calls that came before this time, written as since is." example:"2026-11-21T20:14:00Z"`
	Before    int64        `query:"before" minimum:"0" doc:"Only older calls: the number that an earlier answer has as older."`
	Limit     int          `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"How many calls to return at most."`
}

// AuditCall is what the log has of one call: the record of its end, or that of its beginning while
// it has no end.
type AuditCall struct {
	AuditRecord
	Began  int64 `json:"began,omitempty" doc:"Number of the record with which the call began, if it has two."`
	Broken bool  `json:"broken,omitempty" doc:"The record does not follow the one before. Only the control plane reports it."`
}

// about returns the namespace and the name of what the call is about, and an App of that: an
// operator's call about an App of an agent has the App among its arguments.
func (c AuditCall) about() (namespace, name, app string) {
	var sent struct{ Namespace, App string }
	if c.Namespace != "" || json.Unmarshal(c.Arguments, &sent) != nil || sent.App == "" {
		return c.Namespace, c.Name, ""
	}
	return sent.Namespace, c.Name, sent.App
}

// Within returns the namespace of what the call is about; empty if it is in none.
func (c AuditCall) Within() string {
	namespace, _, _ := c.about()
	return namespace
}

// About returns what the call is about, such as production/web.
func (c AuditCall) About() string {
	namespace, name, app := c.about()
	switch {
	case app != "":
		return name + " " + namespace + "/" + app
	case namespace != "" && name != "":
		return namespace + "/" + name
	case namespace != "":
		return namespace
	}
	return name
}

// AuditHead is the end of the log. A copy of it shows later whether the log was truncated before
// that point or restarted.
type AuditHead struct {
	Seq  int64  `json:"seq" doc:"Number of the last record; 0 for none."`
	Hash string `json:"hash" doc:"Its hash."`
}

// AuditList is a part of the log.
type AuditList struct {
	Items   []AuditCall `json:"items" nullable:"false" doc:"Calls, newest first; with after, each record, oldest first."`
	Head    AuditHead   `json:"head" doc:"The end of the whole log."`
	Older   int64       `json:"older,omitempty" doc:"Give it as before to search older records; absent if there are none."`
	Scanned int         `json:"scanned,omitempty" doc:"How many records were read: 5000 at most, whether the limit was reached or not."`
}
