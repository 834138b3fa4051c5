package contract

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"regexp"
	"strconv"
	"strings"
)

// Answer is a server's answer to a request.
type Answer struct {
	Method string
	Path   string // escaped, without the query
	Status int
	Header http.Header
	Body   []byte
	DryRun bool
	Cut    bool // the body is the beginning of a stream
}

// zeroTime is how Go writes a time that is none.
const zeroTime = `"0001-01-01T00:00:00Z"`

// Check returns an error for anything in an answer that is not in the document.
func (d *Document) Check(a Answer) error {
	op := d.Find(a.Method, a.Path)
	if op == nil {
		return d.checkNoCall(a)
	}
	if a.Header.Get("Request-Id") == "" {
		return errors.New("the answer has no Request-Id")
	}
	if op.ID == kubernetesAPI {
		return checkKubernetes(a)
	}
	answer, ok := op.Responses[fmt.Sprint(a.Status)]
	if !ok {
		return fmt.Errorf("the document has no status %d of %s %s", a.Status, op.Method, op.Path)
	}
	if err := errors.Join(checkOperation(answer, a), checkRetryAfter(answer, a)); err != nil {
		return err
	}
	if bytes.Contains(a.Body, []byte(zeroTime)) {
		return errors.New("the answer has a time that is none")
	}
	return d.checkBody(op, answer, a)
}

// checkNoCall looks at the answer to what is not a call.
func (d *Document) checkNoCall(a Answer) error {
	if a.Status != http.StatusNotFound && a.Status != http.StatusMethodNotAllowed && a.Status != http.StatusBadRequest {
		return fmt.Errorf("%s %s is not a call, and was answered with %d", a.Method, a.Path, a.Status)
	}
	if a.Status == http.StatusMethodNotAllowed && a.Header.Get("Allow") == "" {
		return errors.New("a 405 without Allow")
	}
	if a.Method == http.MethodHead {
		return nil
	}
	return d.validate("/components/schemas/Error", a.Body)
}

// checkOperation wants the headers of a write that was carried out, where the document has them.
func checkOperation(response Response, a Answer) error {
	if _, ok := response.Headers["Operation-Id"]; !ok || a.DryRun {
		return nil
	}
	id := a.Header.Get("Operation-Id")
	if id == "" || a.Header.Get("Location") != "/v1/operations/"+id {
		return fmt.Errorf("a write answered with Operation-Id %q and Location %q", id, a.Header.Get("Location"))
	}
	return nil
}

// checkRetryAfter wants whole seconds, of each 429, and nowhere that the document has none.
func checkRetryAfter(response Response, a Answer) error {
	given := a.Header.Values("Retry-After")
	_, documented := response.Headers["Retry-After"]
	switch {
	case len(given) == 0 && a.Status != http.StatusTooManyRequests:
		return nil
	case len(given) == 0:
		return errors.New("a 429 without Retry-After")
	case !documented:
		return fmt.Errorf("the document has no Retry-After of status %d", a.Status)
	}
	if seconds, err := strconv.Atoi(given[0]); len(given) > 1 || err != nil || seconds < 1 {
		return fmt.Errorf("Retry-After is %q", given)
	}
	return nil
}

// discovery matches the paths of the API server that list what exists.
var discovery = regexp.MustCompile(`^/v1/kubernetes/(version|openapi|api|apis)(/[^/]+){0,2}/?$`)

// checkKubernetes looks at an answer that is the API server's, or a Status of the agent's.
func checkKubernetes(a Answer) error {
	if a.Status < http.StatusBadRequest || a.Method == http.MethodHead || a.Cut {
		return nil
	}
	media, _, err := mime.ParseMediaType(a.Header.Get("Content-Type"))
	if err != nil {
		return fmt.Errorf("content type %q: %w", a.Header.Get("Content-Type"), err)
	}
	if agents := bytes.HasPrefix(a.Body, []byte("PipeOps agent: ")); media == "text/plain" && (!agents || discovery.MatchString(a.Path)) {
		return nil // so the API server refuses what it has no handler for, and the agent discovery
	}
	var status struct {
		APIVersion, Kind, Status, Message, Reason string
		Code                                      int
	}
	if err := json.Unmarshal(a.Body, &status); media != "application/json" || err != nil {
		return fmt.Errorf("an error of content type %s is not a Status: %w", media, err)
	}
	if status.APIVersion != "v1" || status.Kind != "Status" || status.Status != "Failure" || status.Message == "" || status.Code != a.Status {
		return fmt.Errorf("the answer %d is not a Status: %+v", a.Status, status)
	}
	return nil
}

func (d *Document) checkBody(op *Operation, answer Response, a Answer) error {
	if len(answer.Content) == 0 {
		if len(a.Body) > 0 && a.Status != http.StatusSwitchingProtocols {
			return fmt.Errorf("the document has no body of status %d", a.Status)
		}
		return nil
	}
	media, _, err := mime.ParseMediaType(a.Header.Get("Content-Type"))
	if err != nil {
		return fmt.Errorf("content type %q: %w", a.Header.Get("Content-Type"), err)
	}
	if _, ok := answer.Content[media]; !ok {
		return fmt.Errorf("the document has no content type %s of status %d", media, a.Status)
	}
	if a.Method == http.MethodHead {
		if len(a.Body) > 0 {
			return errors.New("HEAD was answered with a body")
		}
		return nil
	}
	schema := strings.Join([]string{"", "paths", escaped(op.Path), strings.ToLower(op.Method), "responses", fmt.Sprint(a.Status), "content", escaped(media), "schema"}, "/")
	switch media {
	case "text/plain":
		return nil
	case "text/event-stream":
		return d.checkEvents(schema, a.Body)
	case "application/x-ndjson":
		return d.checkLines(schema, a)
	}
	if a.Cut {
		return nil
	}
	return d.validate(schema, a.Body)
}

// checkEvents looks at the events that are whole.
func (d *Document) checkEvents(schema string, body []byte) error {
	blocks := strings.Split(string(body), "\n\n")
	for _, block := range blocks[:len(blocks)-1] {
		of := schema
		if strings.Contains(block, "event: error\n") {
			of = "/components/schemas/Error"
		}
		for line := range strings.SplitSeq(block, "\n") {
			if data, ok := strings.CutPrefix(line, "data: "); ok {
				if err := d.validate(of, []byte(data)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (d *Document) checkLines(schema string, a Answer) error {
	lines := strings.Split(string(a.Body), "\n")
	for _, line := range lines[:len(lines)-1] {
		if err := d.validate(schema, []byte(line)); err != nil {
			return err
		}
	}
	return nil
}
