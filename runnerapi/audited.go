package runnerapi

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5/middleware"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

type auditKey struct{}

// auditNote is what the audit log is to know of a call that is under way.
type auditNote struct {
	body       []byte
	objects    []ManifestRef      // of the call that applies some
	kubernetes *KubernetesRequest // of the call that is for the Kubernetes API
	problem    error              // what was answered, where the answer is in other words
}

// noteBody keeps a call's body for the audit log.
func noteBody(ctx context.Context, body []byte) {
	if n, ok := ctx.Value(auditKey{}).(*auditNote); ok {
		n.body = body
	}
}

// noteObjects keeps which objects a call is about for the audit log.
func noteObjects(ctx context.Context, refs []ManifestRef) {
	if n, ok := ctx.Value(auditKey{}).(*auditNote); ok {
		n.objects = refs
	}
}

// audited records each command, and each refusal of another call, when it is
// answered.
func (s *server) audited(next http.Handler) http.Handler {
	if s.Audit == nil {
		return next
	}
	calls := callsByRoute()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		note := &auditNote{}
		r = r.WithContext(context.WithValue(r.Context(), auditKey{}, note))
		ww := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		answer := &beginning{}
		ww.Tee(answer)
		ended := false
		defer func() { // a panic is an answer too
			call := callOf(calls, r)
			status := ww.Status()
			if !ended && status == 0 {
				status = http.StatusInternalServerError
			}
			if record, told := auditRecord(r, call, note, status, ww.Header(), answer.Bytes()); told {
				record.Time, record.Millis = start.UTC(), time.Since(start).Milliseconds()
				record.Arguments = noteArguments(call, r, note, &record)
				s.Audit.Record(record)
			}
		}()
		next.ServeHTTP(ww, r)
		ended = true
	})
}

// auditRecord says what there is to be told of a call, and whether it is to be
// told at all: reading that is allowed is not.
func auditRecord(r *http.Request, call Call, note *auditNote, status int, header http.Header, answer []byte) (AuditRecord, bool) {
	refused := status == http.StatusUnauthorized || status == http.StatusForbidden
	discovered := note.kubernetes != nil && note.kubernetes.Discovery // kubectl does so before anything else
	if (call.Access == Reads || discovered) && !refused {
		return AuditRecord{}, false
	}
	caller := callerFrom(r.Context())
	a := AuditRecord{
		Runner: caller.Runner, RequestID: caller.RequestID, Command: call.ID, Status: status,
		Namespace: clip(pathParam(r, "namespace")), Name: clip(pathParam(r, "name")),
		Operation: header.Get(operationIDHeader), Outcome: AuditDone,
	}
	if call.Path == applyRoute {
		target := applyTarget(r)
		a.Namespace, a.Name = clip(target.Namespace), clip(target.Name)
	}
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		a.Certificate = r.TLS.VerifiedChains[0][0].SerialNumber.Text(16)
	}
	switch {
	case status >= http.StatusInternalServerError:
		a.Outcome = AuditFailed
	case status >= http.StatusBadRequest:
		a.Outcome = AuditRefused
	}
	if status >= http.StatusBadRequest {
		e := problemIn(note, func() *Error { return problem.Parse(status, header.Get("Content-Type"), answer) })
		a.Code = e.Code
		if e.Code == CodePolicyDenied { // others may quote what was sent
			a.Message = e.Detail
		}
	}
	return a, true
}

// beginning keeps the first bytes of an answer: problems are small.
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

// noteArguments are the arguments of a call, and with them what else is known of it.
func noteArguments(call Call, r *http.Request, note *auditNote, record *AuditRecord) json.RawMessage {
	if call.Path == applyRoute || call.Path == setRoute {
		return setArguments(r.URL.Query(), note.objects)
	}
	args := map[string]any{}
	if note.kubernetes != nil {
		note.kubernetes.about(record, r.Method, args)
	}
	return auditArguments(call, r.URL.Query(), note.body, args)
}

// auditArguments are a call's query and body without what may be secret: texts
// are told only of fields that hold none, of all others that they are there.
func auditArguments(call Call, query map[string][]string, body []byte, args map[string]any) json.RawMessage {
	for key, values := range query {
		if auditedQuery[key] && len(values) > 0 {
			args[key] = clip(values[0])
		}
	}
	var sent any
	if len(body) > 0 && json.Unmarshal(body, &sent) == nil {
		args["body"] = withoutSecrets(bodyField(call), sent, 0)
	}
	if len(args) == 0 {
		return nil
	}
	if text, err := json.Marshal(args); err == nil && len(text) <= maxArguments {
		return text
	}
	if object, ok := sent.(map[string]any); ok { // at least which fields there were, and what runs
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

// setArguments are those of the calls about sets: which objects, as many as there is room
// for, and nothing of what is in them.
func setArguments(query map[string][]string, objects []ManifestRef) json.RawMessage {
	args := map[string]any{}
	for _, key := range []string{"dryRun", "wait", "prune", "diff", "forceConflicts"} {
		if values := query[key]; len(values) > 0 {
			args[key] = clip(values[0])
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

// hidden stands for a text that may be secret.
const hidden = "***"

// auditedQuery are what is told of the query, each with its first value: of a command that
// is the program, and not the arguments.
var auditedQuery = map[string]bool{"dryRun": true, "wait": true, "follow": true, "tail": true, "since": true, "container": true, "pod": true, "port": true, "tty": true, "stdin": true, "command": true, "adopt": true}

// auditedFields are those whose texts are no secrets. Those of env, args,
// command, annotations, labels and of all data are not among them.
var auditedFields = map[string]bool{
	"image": true, "type": true, "cpu": true, "memory": true, "size": true, "storage": true, "cron": true, "timeZone": true,
	"mode": true, "rollback": true, "strategy": true, "secret": true, "configMap": true, "name": true, "key": true,
	"mountPath": true, "existingClaim": true, "storageClass": true, "protocol": true, "host": true, "tlsSecret": true,
	"kind": true, "apiVersion": true, "maxUnavailable": true, "maxSurge": true, "oci": true, "version": true,
}

// bodyField is the field as which a body counts: that of what is nothing but
// data is a secret tree, whatever the fields in it are called.
func bodyField(call Call) string {
	if call.Path == secretRoute || call.Path == configMapRoute {
		return "data"
	}
	return ""
}

// secretTrees are fields below which no text is told, whatever it is called.
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

// withoutTexts leaves the names of keys, and how many there are.
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
