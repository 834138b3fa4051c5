// Package audit writes what Runners did to the audit log, without secrets.
package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5/middleware"
	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/request"
)

type auditKey struct{}

// Note is what the audit log needs to know about a call in progress.
type Note struct {
	body       []byte
	objects    []runnerapi.ManifestRef      // of a call that applies objects
	kubernetes *runnerapi.KubernetesRequest // of a call to the Kubernetes API
	approval   string                       // ID of the approval by the cluster's owner
	problem    error                        // the error that the caller got in another form
}

// NoteBody records a call's body for the audit log.
func NoteBody(ctx context.Context, body []byte) {
	if n, ok := ctx.Value(auditKey{}).(*Note); ok {
		n.body = body
	}
}

// NoteApproval records for the audit log that the cluster's owner approved a call.
func NoteApproval(ctx context.Context, id string) {
	if n, ok := ctx.Value(auditKey{}).(*Note); ok {
		n.approval = id
	}
}

// NoteObjects records for the audit log which objects a call concerns.
func NoteObjects(ctx context.Context, refs []runnerapi.ManifestRef) {
	if n, ok := ctx.Value(auditKey{}).(*Note); ok {
		n.objects = refs
	}
}

// Log records what Runners do.
type Log struct {
	Auditor backend.Auditor
	Policy  backend.Policy
	Logger  zerolog.Logger
}

// Calls records each command, and each refusal of another call, once it is answered.
func (l *Log) Calls(next http.Handler) http.Handler {
	if l.Auditor == nil {
		return next
	}
	calls := request.CallsByRoute()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		note := &Note{}
		r = r.WithContext(context.WithValue(r.Context(), auditKey{}, note))
		ww := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		answer := &beginning{}
		ww.Tee(answer)
		ended := false
		defer func() { // a panic also ends in an answer
			call := request.CallOf(calls, r)
			status := ww.Status()
			if !ended && status == 0 {
				status = http.StatusInternalServerError
			}
			if record, told := Record(r, call, note, status, ww.Header(), answer.Bytes()); told {
				record.Time, record.Millis = start.UTC(), time.Since(start).Milliseconds()
				record.Arguments = Arguments(call, r, note, &record)
				l.Auditor.Record(record)
			}
		}()
		next.ServeHTTP(ww, r)
		ended = true
	})
}

// Record returns the record for a call and whether to write it: allowed reads are not
// recorded.
func Record(r *http.Request, call runnerapi.Call, note *Note, status int, header http.Header, answer []byte) (runnerapi.AuditRecord, bool) {
	refused := status == http.StatusUnauthorized || status == http.StatusForbidden
	discovered := note.kubernetes != nil && note.kubernetes.Discovery // kubectl runs discovery before anything else
	if (call.Access == runnerapi.Reads || discovered) && !refused {
		return runnerapi.AuditRecord{}, false
	}
	caller := request.Caller(r.Context())
	a := runnerapi.AuditRecord{
		Runner: caller.Runner, Actor: caller.Actor, RequestID: caller.RequestID, Command: call.ID, Status: status,
		Namespace: printable.Clip(request.PathParam(r, "namespace")), Name: printable.Clip(request.PathParam(r, "name")),
		Operation: header.Get(request.OperationIDHeader), Recording: header.Get(runnerapi.RecordingHeader), Approval: note.approval, Outcome: runnerapi.AuditDone,
	}
	if call.Path == runnerapi.ApplyPath {
		target := request.ApplyTarget(r)
		a.Namespace, a.Name = printable.Clip(target.Namespace), printable.Clip(target.Name)
	}
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		a.Certificate = r.TLS.VerifiedChains[0][0].SerialNumber.Text(16)
	}
	switch {
	case status >= http.StatusInternalServerError:
		a.Outcome = runnerapi.AuditFailed
	case status >= http.StatusBadRequest:
		a.Outcome = runnerapi.AuditRefused
	}
	if status >= http.StatusBadRequest {
		e := problemIn(note, func() *runnerapi.Error { return problem.Parse(status, header.Get("Content-Type"), answer) })
		a.Code = e.Code
		if e.Code == runnerapi.CodePolicyDenied { // others may quote what was sent
			a.Message = e.Detail
		}
	}
	return a, true
}

// beginning keeps the first bytes of an answer, which is enough for a problem.
type beginning struct{ bytes.Buffer }

const maxBeginning = 4 << 10

// Write implements io.Writer. It never fails.
func (b *beginning) Write(p []byte) (int, error) {
	if room := maxBeginning - b.Len(); room > 0 {
		b.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

// Limits of the arguments in the audit log.
const (
	maxArguments = 3 << 10 // bytes
	maxArgument  = 256     // bytes of one text
	maxDepth     = 12
	maxKeys      = 64
)

// Arguments returns the arguments of a call and adds what else is known about it to the record.
func Arguments(call runnerapi.Call, r *http.Request, note *Note, record *runnerapi.AuditRecord) json.RawMessage {
	if call.Path == runnerapi.ApplyPath || call.Path == runnerapi.SetPath {
		return setArguments(r.URL.Query(), note.objects)
	}
	args := map[string]any{}
	if note.kubernetes != nil {
		auditKubernetes(note.kubernetes, record, r.Method, args)
	}
	return callArguments(call, r.URL.Query(), note.body, args)
}

// callArguments returns a call's query and body without possible secrets. It includes the text of
// fields that hold no secrets, and only the presence of all other fields.
func callArguments(call runnerapi.Call, query map[string][]string, body []byte, args map[string]any) json.RawMessage {
	for key, values := range query {
		if auditedQuery[key] && len(values) > 0 {
			args[key] = printable.Clip(values[0])
		}
	}
	var sent any
	if len(body) > 0 && request.Decoder.JSON(body, &sent) == nil { // as the call itself decodes it
		args["body"] = withoutSecrets(bodyField(call), sent, 0)
	}
	if len(args) == 0 {
		return nil
	}
	if text, err := json.Marshal(args); err == nil && len(text) <= maxArguments {
		return text
	}
	if object, ok := sent.(map[string]any); ok { // at least the field names, and what runs
		image := object["image"]
		for key := range object {
			object[key] = hidden
		}
		if image != nil {
			object["image"] = image
		}
		args["body"] = object
	}
	args["shortened"] = true
	text, err := json.Marshal(args)
	if err != nil || len(text) > maxArguments {
		return json.RawMessage(`{"shortened":true}`)
	}
	return text
}

// setArguments returns the arguments of calls about sets: as many object references as fit, and
// none of the objects' content.
func setArguments(query map[string][]string, objects []runnerapi.ManifestRef) json.RawMessage {
	args := map[string]any{}
	for _, key := range []string{"dryRun", "wait", "prune", "diff", "forceConflicts"} {
		if values := query[key]; len(values) > 0 {
			args[key] = printable.Clip(values[0])
		}
	}
	if len(objects) > 0 {
		args["count"] = len(objects)
	}
	room, told := maxArguments*2/3, []string{}
	for _, o := range objects {
		if room -= len(o.String()) + 3; room < 0 {
			args["shortened"] = true
			break
		}
		told = append(told, o.String())
	}
	if len(told) > 0 {
		args["objects"] = told
	}
	if len(args) == 0 {
		return nil
	}
	text, err := json.Marshal(args)
	if err != nil || len(text) > maxArguments {
		return json.RawMessage(`{"shortened":true}`)
	}
	return text
}

// hidden replaces a text that may be secret.
const hidden = "***"

// auditedQuery lists the query parameters that are recorded, each with its first value. Of a
// command, that is the program without its arguments.
var auditedQuery = map[string]bool{"dryRun": true, "wait": true, "follow": true, "tail": true, "since": true, "container": true, "pod": true, "port": true, "tty": true, "stdin": true, "command": true, "adopt": true}

// auditedFields lists the fields whose texts are not secret. It leaves out env, args, command,
// annotations, labels and all data.
var auditedFields = map[string]bool{
	"image": true, "type": true, "cpu": true, "memory": true, "size": true, "storage": true, "cron": true, "timeZone": true,
	"mode": true, "rollback": true, "strategy": true, "secret": true, "configMap": true, "name": true, "key": true,
	"mountPath": true, "existingClaim": true, "storageClass": true, "protocol": true, "host": true, "tlsSecret": true,
	"kind": true, "apiVersion": true, "maxUnavailable": true, "maxSurge": true, "oci": true, "version": true,
}

// bodyField returns the field that stands for a whole body. A body that is only data counts as a
// secret tree, regardless of its field names.
func bodyField(call runnerapi.Call) string {
	if call.Path == runnerapi.SecretPath || call.Path == runnerapi.ConfigMapPath {
		return "data"
	}
	return ""
}

// secretTrees lists the fields below which no text is recorded, regardless of its name.
var secretTrees = map[string]bool{
	"data": true, "binaryData": true, "stringData": true, "args": true, "command": true, "exec": true,
	"annotations": true, "labels": true, "podLabels": true, "podAnnotations": true, "values": true,
}

func withoutSecrets(field string, v any, depth int) any {
	if depth > maxDepth {
		return hidden
	}
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if secretTrees[key] || secretTrees[field] {
				v[key] = withoutTexts(value)
			} else {
				v[key] = withoutSecrets(key, value, depth+1)
			}
		}
		return v
	case []any:
		for i := range v {
			v[i] = withoutSecrets("", v[i], depth+1) // texts in lists are hidden
		}
		return v
	case string:
		if auditedFields[field] && len(v) <= maxArgument {
			return v
		}
		return hidden
	}
	return v
}

// withoutTexts keeps the key names and their number.
func withoutTexts(v any) any {
	object, ok := v.(map[string]any)
	if !ok || len(object) > maxKeys {
		return hidden
	}
	for key := range object {
		object[key] = hidden
	}
	return object
}
