package announce

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

	"github.com/pipeops/pipeops-vm-agent/internal/decode"
	"github.com/pipeops/pipeops-vm-agent/internal/printable"
)

// ContentType is the media type of an encoded event.
const ContentType = cloudevents.ApplicationCloudEventsJSON

// MaxEventSize is the largest encoded event that is sent or accepted.
const MaxEventSize = 256 << 10

// The CloudEvents extension attributes. Sequences are strings that have the order of the numbers,
// as the extension demands
// (https://github.com/cloudevents/spec/blob/main/cloudevents/extensions/sequence.md).
const (
	extAgentID  = "agentid"
	extSequence = "sequence"
	extPrevious = "previous"
)

// TypePrefix precedes the types in CloudEvents: the domain of this project, reversed.
const TypePrefix = "io.pipeops."

// padded has the digits of the largest sequence, so that sequences order as text.
func padded(sequence uint64) string { return fmt.Sprintf("%020d", sequence) }

// TypePattern accepts types that are newer than this code, if their group is known.
var TypePattern = regexp.MustCompile(`^(agent|app|route|alert)\.[a-z]{1,40}$`)

// TypeParameter is the form of types in queries of timelines: with or without [TypePrefix].
var TypeParameter = regexp.MustCompile(`^(io\.pipeops\.)?(agent|app|route|alert)\.[a-z]{1,40}$`)

// futurePattern is the form of types whose group may be newer than this code.
var futurePattern = regexp.MustCompile(`^[a-z]{1,40}\.[a-z]{1,40}$`)

// UnknownTypeError reports a sound event of a type whose group this code does not know. A reader
// skips it, so that an old Runner works with a new control plane.
type UnknownTypeError struct{ Type Type }

func (e *UnknownTypeError) Error() string {
	return "event: the type " + string(e.Type) + " is not known"
}

// FieldError reports why an encoded event was refused. It names the attribute at fault and never
// quotes the data.
type FieldError struct {
	Field  string
	Reason string
}

func (e *FieldError) Error() string {
	if e.Field == "" {
		return "event: " + e.Reason
	}
	return "event: " + e.Field + ": " + e.Reason
}

func fieldErr(field, format string, args ...any) error {
	return &FieldError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// Encode returns the event as CloudEvents 1.0 structured JSON.
func (e *Event) Encode() ([]byte, error) {
	if err := e.validate(); err != nil {
		return nil, err
	}
	ce := cloudevents.New(cloudevents.CloudEventsVersionV1)
	ce.SetID(e.ID)
	ce.SetType(TypePrefix + string(e.Type))
	ce.SetSource(e.Source)
	ce.SetSubject(e.subject())
	ce.SetTime(e.Time)
	ce.SetExtension(extAgentID, e.AgentID)
	ce.SetExtension(extSequence, padded(e.Sequence))
	ce.SetExtension(extPrevious, padded(e.Previous))
	if err := ce.SetData(cloudevents.ApplicationJSON, e.Data); err != nil {
		return nil, fieldErr("data", "%v", err)
	}
	if err := ce.Validate(); err != nil {
		return nil, fieldErr("", "%v", err)
	}
	body, err := json.Marshal(ce)
	if err != nil {
		return nil, fmt.Errorf("event %s: encode: %w", e.ID, err)
	}
	if len(body) > MaxEventSize {
		return nil, fieldErr("data", "the event has %d bytes, at most %d are allowed", len(body), MaxEventSize)
	}
	return body, nil
}

// Encoded is an encoded event with what its routing depends on.
type Encoded struct {
	ID      string
	Type    Type
	AgentID string
	Time    time.Time
	Runners []string
	Body    []byte
}

// Encoded returns the event in encoded form.
func (e *Event) Encoded() (Encoded, error) {
	body, err := e.Encode()
	return Encoded{ID: e.ID, Type: e.Type, AgentID: e.AgentID, Time: e.Time, Runners: e.Runners, Body: body}, err
}

// ofEvents bounds the memory that the decoded values of an event take.
var ofEvents = decode.LimitsFor(MaxEventSize)

// Decode decodes what Encode wrote. It skips unknown attributes and data fields. It returns a
// [FieldError] for anything missing or malformed, and an [UnknownTypeError] for an event to skip.
func Decode(body []byte) (Event, error) {
	if len(body) > MaxEventSize {
		return Event{}, fieldErr("", "has %d bytes, at most %d are allowed", len(body), MaxEventSize)
	}
	if err := precheck(body); err != nil {
		return Event{}, err
	}
	var ce cloudevents.Event
	if err := ofEvents.JSON(body, &ce); err != nil {
		return Event{}, fieldErr("", "not CloudEvents 1.0 JSON: %s", printable.Clip(err.Error()))
	}
	kind, ours := strings.CutPrefix(ce.Type(), TypePrefix)
	if !ours {
		return Event{}, fieldErr("type", "%q does not begin with %s", printable.Clip(ce.Type()), TypePrefix)
	}
	e := Event{
		ID:     ce.ID(),
		Type:   Type(kind),
		Source: ce.Source(),
		Time:   ce.Time(),
		Data:   bytes.TrimSpace(ce.Data()), // without the space that the library keeps before it
	}
	var err error
	if e.AgentID, err = extension(&ce, extAgentID); err != nil {
		return Event{}, err
	}
	if e.Sequence, err = sequence(&ce, extSequence); err != nil {
		return Event{}, err
	}
	if e.Previous, err = sequence(&ce, extPrevious); err != nil {
		return Event{}, err
	}
	if err := e.validate(); err != nil {
		return Event{}, err
	}
	return e, nil
}

// precheck refuses input that the CloudEvents library accepts or mishandles: text that is not JSON,
// the older version 0.3, and base64 data, which this wire does not use.
func precheck(body []byte) error {
	var fields map[string]json.RawMessage
	if err := ofEvents.JSON(body, &fields); err != nil {
		return fieldErr("", "not a JSON object: %s", printable.Clip(err.Error()))
	}
	switch string(fields["specversion"]) {
	case `"1.0"`:
	case "":
		return fieldErr("specversion", "is missing")
	default:
		return fieldErr("specversion", `must be "1.0"`)
	}
	if source := string(fields["source"]); source == "" || source == `""` {
		return fieldErr("source", "must not be empty")
	}
	for _, name := range []string{"data_base64", "datacontentencoding"} {
		if _, ok := fields[name]; ok {
			return fieldErr(name, "is not used on this wire: data must be JSON")
		}
	}
	if string(fields["datacontenttype"]) != `"`+cloudevents.ApplicationJSON+`"` {
		return fieldErr("datacontenttype", "must be %q", cloudevents.ApplicationJSON)
	}
	return nil
}

func extension(ce *cloudevents.Event, name string) (string, error) {
	v, ok := ce.Extensions()[name]
	if !ok {
		return "", fieldErr(name, "is missing")
	}
	s, ok := v.(string)
	if !ok {
		return "", fieldErr(name, "must be a string")
	}
	return s, nil
}

func sequence(ce *cloudevents.Event, name string) (uint64, error) {
	s, err := extension(ce, name)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, fieldErr(name, "%q is not a whole number", printable.Clip(s))
	}
	return n, nil
}

func (e *Event) validate() error {
	switch {
	case e.ID == "":
		return fieldErr("id", "must not be empty")
	case len(e.ID) > 128:
		return fieldErr("id", "is longer than 128 characters")
	case !futurePattern.MatchString(string(e.Type)):
		return fieldErr("type", "%q is not agent.WORD, app.WORD, route.WORD or alert.WORD", printable.Clip(string(e.Type)))
	case e.Source == "":
		return fieldErr("source", "must not be empty")
	case e.Sequence == 0:
		return fieldErr(extSequence, "must be at least 1")
	case e.Previous >= e.Sequence:
		return fieldErr(extPrevious, "must be less than sequence")
	case e.Time.IsZero():
		return fieldErr("time", "is missing")
	}
	if err := checkAgentID(e.AgentID); err != nil {
		return fieldErr(extAgentID, "%v", err)
	}
	return e.validateData()
}

func (e *Event) validateData() error {
	if len(e.Data) == 0 || e.Data[0] != '{' || !json.Valid(e.Data) {
		return fieldErr("data", "must be a JSON object")
	}
	if !TypePattern.MatchString(string(e.Type)) {
		return &UnknownTypeError{e.Type}
	}
	var err error
	switch {
	case e.Type.IsAgent():
		_, err = e.Agent()
	case e.Type.IsRoute():
		_, err = e.Route()
	case e.Type.IsAlert():
		_, err = e.Alert()
	default:
		_, err = e.App()
	}
	if err != nil {
		return fieldErr("data", "%v", err)
	}
	return nil
}
