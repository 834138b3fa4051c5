package approval

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"slices"
	"strings"

	kjson "sigs.k8s.io/json"

	"github.com/pipeops/pipeops-vm-agent/internal/decode"
	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/request"
)

// maxShown bounds a body that the owner is shown, and the rest of the request, in bytes each.
const maxShown = 64 << 10

// View returns what the owner is shown of the command: all of it but secret values. Where that is
// not possible, Unseen has the reason.
func (a Request) View() runnerapi.ApprovalView {
	v := runnerapi.ApprovalView{
		Method: a.Method, Path: a.Path, Query: a.Query, Headers: a.Headers, User: a.As.User, Groups: a.As.Groups, BodyBytes: len(a.Body), Unseen: a.session(),
	}
	if head, err := json.Marshal(v); err != nil || len(head) > maxShown {
		v.Query, v.Headers, v.Unseen = nil, nil, fmt.Sprintf("its query and headers have more than %d bytes", maxShown)
		v.Path = printable.Clip(v.Path)
	}
	if len(a.Body) == 0 {
		return v
	}
	body, err := a.body()
	if err != nil {
		v.Unseen = strings.TrimPrefix(v.Unseen+"; ", "; ") + err.Error()
		return v
	}
	v.Body = body
	return v
}

// session returns why a session cannot be shown: what flows in it follows the approval.
func (a Request) session() string {
	k := a.kubernetes
	switch {
	case a.Command == runnerapi.PortForwardCall, k != nil && k.Subresource == "portforward":
		return "it forwards a port, and what is sent through it follows"
	case a.Command == runnerapi.ExecCall, k != nil && (k.Subresource == "exec" || k.Subresource == "attach"):
		if a.asks("stdin") {
			return "it is a session that reads what the Runner types, which follows"
		}
	case k != nil && k.Upgrade != "":
		return "it opens a connection, and what is sent through it follows"
	}
	return ""
}

// asks reports whether a switch of the query may be on. The API server takes every text for true
// but "0" and "false". Other readers take fewer.
func (a Request) asks(name string) bool {
	return slices.ContainsFunc(a.Query[name], func(s string) bool { return s != "0" && !strings.EqualFold(s, "false") })
}

// body returns the body as JSON, without secret values. It is read as the call itself reads it.
func (a Request) body() (json.RawMessage, error) {
	if len(a.Body) > maxShown {
		return nil, fmt.Errorf("its body has %d bytes, and at most %d are shown", len(a.Body), maxShown)
	}
	if len(a.Headers["Content-Encoding"]) > 0 {
		return nil, fmt.Errorf("its body is encoded as %.40q", a.Headers["Content-Encoding"])
	}
	shown, err := a.decoded()
	if err != nil {
		return nil, err
	}
	if a.hasArchive(shown) {
		return nil, fmt.Errorf("its chart is an archive in the body")
	}
	a.hide(shown)
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(shown); err != nil {
		return nil, fmt.Errorf("its body cannot be shown: %w", err)
	}
	text := printable.JSON(bytes.TrimSpace(buffer.Bytes()))
	if len(text) > 2*maxShown { // characters are escaped, and aliases written out
		return nil, fmt.Errorf("its body has more than %d bytes as JSON", 2*maxShown)
	}
	return text, nil
}

// hasArchive reports whether a chart is in the body itself.
func (a Request) hasArchive(body any) bool {
	release, _ := body.(map[string]any)
	chart, _ := release["chart"].(map[string]any)
	return a.Command == putRelease && chart["archive"] != nil
}

// decoded returns the values of the body; of several documents, a list.
func (a Request) decoded() (any, error) {
	if a.Command == runnerapi.ApplyCall {
		return documents(a.Body)
	}
	text := a.Body
	if a.kubernetes != nil {
		media, _, err := mime.ParseMediaType(a.Headers.Get("Content-Type"))
		switch {
		case err != nil && len(a.Headers["Content-Type"]) > 0, len(a.Headers["Content-Type"]) > 1:
			return nil, fmt.Errorf("the content type of its body makes no sense")
		case strings.HasSuffix(media, "yaml"):
			if text, err = request.Decoder.ServerJSON(text); err != nil {
				return nil, fmt.Errorf("its body cannot be read: %s", printable.Clip(err.Error()))
			}
		case media != "" && !strings.HasSuffix(media, "json"):
			return nil, fmt.Errorf("its body is %.80q, and only JSON and YAML can be shown", media)
		}
	}
	return plainJSON(text)
}

// plainJSON decodes JSON that all readers understand alike, and keeps its numbers.
func plainJSON(text []byte) (v any, err error) {
	var discarded any
	if strict, err := kjson.UnmarshalStrict(text, &discarded); err != nil || len(strict) > 0 {
		return nil, fmt.Errorf("its body is not JSON, or has a field twice")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return v, d.Decode(&v)
}

// documents decodes manifests as the call that applies them does.
func documents(text []byte) (any, error) {
	budget, all := request.Decoder.Budget(), []any{}
	for _, part := range decode.Split(text) {
		document, err := budget.Document(part)
		if document == nil && err == nil {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("its body cannot be read: %s", printable.Clip(err.Error()))
		}
		one, err := document.JSON()
		if err != nil {
			return nil, fmt.Errorf("its body cannot be read: %s", printable.Clip(err.Error()))
		}
		v, err := plainJSON(one)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}

// hide replaces the secret values of a body: those that Kubernetes keeps in Secrets.
func (a Request) hide(v any) {
	if all, ok := v.([]any); ok { // documents, or the operations of a JSON patch
		for _, one := range all {
			a.hide(one)
		}
		return
	}
	object, ok := v.(map[string]any)
	if !ok {
		return
	}
	if items, isList := decode.Items(object); isList {
		a.hide(items)
	}
	if a.setsSecret(object) {
		hideSecret(object)
	}
	if a.Command == putRelease && object["values"] != nil {
		object["values"] = hidden(object["values"], names)
	}
}

// hideSecret hides the values of a Secret, or of a patch of one.
func hideSecret(v map[string]any) {
	fields := []string{"data", "stringData", "binaryData", "value"}
	if path, _ := v["path"].(string); strings.HasPrefix(path, "/metadata/") && !strings.HasPrefix(path, "/metadata/annotations") {
		fields = nil // an operation of a JSON patch that changes no value
	}
	for _, field := range fields {
		if v[field] != nil {
			v[field] = hidden(v[field], anyKey)
		}
	}
	about, _ := v["metadata"].(map[string]any)
	if annotations, ok := about["annotations"].(map[string]any); ok && annotations[lastApplied] != nil {
		annotations[lastApplied] = hidden(annotations[lastApplied], anyKey)
	}
}

// lastApplied is the annotation in which kubectl keeps a copy of the whole object.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// putRelease is the command whose values are kept in a Secret.
const putRelease = "put-release"

// hidden returns v without the texts and numbers below keys that name secrets.
func hidden(v any, secret func(key string) bool) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			below := secret
			if secret(key) {
				below = anyKey
			}
			v[key] = hidden(value, below)
		}
	case []any:
		for i := range v {
			v[i] = hidden(v[i], secret)
		}
	case string:
		if secret("") {
			return fmt.Sprintf("(secret, %d bytes)", len(v))
		}
	case json.Number:
		if secret("") {
			return "(secret)"
		}
	}
	return v
}

// setsSecret reports whether an object of the body is a Secret, or a patch of one. The API server
// decides that by the path alone: what looks like a Secret may be something else to others.
func (a Request) setsSecret(object map[string]any) bool {
	if a.kubernetes != nil {
		return a.kubernetes.Group == "" && a.kubernetes.Resource == "secrets"
	}
	return a.Command == "put-secret" || object["kind"] == "Secret" && object["apiVersion"] == "v1"
}

func anyKey(string) bool { return true }

// names reports whether a key of a chart's values names a secret.
func names(key string) bool {
	key = strings.NewReplacer("_", "", "-", "", ".", "").Replace(strings.ToLower(key))
	return slices.ContainsFunc([]string{"password", "passwd", "passphrase", "token", "apikey", "secretkey", "accesskey", "privatekey", "clientsecret"},
		func(end string) bool { return strings.HasSuffix(key, end) })
}
