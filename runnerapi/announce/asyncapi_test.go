package announce_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/rabbitmq"
	"github.com/pipeops/pipeops-vm-agent/test/constants"
)

//go:generate go test . -run TestAsyncAPIIsCommitted -update

var update = flag.Bool("update", false, "write docs/asyncapi.json anew")

const (
	asyncAPIFile   = "../../docs/asyncapi.json"
	asyncAPIFrozen = "../../docs/asyncapi/v1.json"
)

// kinds are the types of events there are, and what each says.
var kinds = []struct {
	kind    announce.Type
	summary string
}{
	{announce.AgentRegistered, "An agent registered. It is not online yet."},
	{announce.AgentOnline, "An agent's tunnel is up: it can be reached."},
	{announce.AgentOffline, "An agent has no tunnel, or was silent for three heartbeats."},
	{announce.AgentUpdated, "Something changed that a Runner chooses agents by."},
	{announce.AgentRemoved, "An agent was revoked, or the Runner may not see it any more."},
	{announce.AgentCloned, "Somebody else was seen with the agent's identity; clones says who."},
	{announce.AppProgressing, "An App is on its way to what was asked."},
	{announce.AppHealthy, "An App is as it was asked to be."},
	{announce.AppDegraded, "An App serves, but is not as it was asked to be; cause, message and fix say why."},
	{announce.AppFailed, "An App does not serve; cause, message and fix say why."},
	{announce.AppRemoved, "An App is gone."},
	{announce.RouteServing, "The gateway serves a public host from the agent."},
	{announce.RouteSuspended, "The gateway does not serve a public host from the agent any more; reason says why."},
	{announce.AlertFiring, "An alert of the cluster's monitoring began to fire."},
	{announce.AlertResolved, "An alert of the cluster's monitoring is resolved."},
}

func sampleEvent(t testing.TB, kind announce.Type) announce.Event {
	t.Helper()
	at := time.Date(2026, 11, 21, 12, 0, 5, 0, time.UTC)
	var e announce.Event
	var err error
	switch {
	case kind.IsAgent():
		e, err = announce.NewAgentEvent(kind, "/controlplane", sampleAgent(), 42, at)
	case kind.IsRoute():
		e, err = announce.NewRouteEvent(kind, "/controlplane", "k3v9q2m7", sampleRoute(kind), 42, at)
	case kind.IsAlert():
		e, err = announce.NewAlertEvent(kind, "/controlplane", "k3v9q2m7", sampleAlert(), 42, at)
	default:
		e, err = announce.NewAppEvent(kind, "/controlplane", "k3v9q2m7", sampleApp(), 42, at)
	}
	require.NoError(t, err)
	e.ID = "0193a0c5-2f10-7e55-9b6e-3c1d5a7f0e11"
	return e
}

func decodedSample(t testing.TB, kind announce.Type) object {
	t.Helper()
	e := sampleEvent(t, kind)
	body, err := e.Encode()
	require.NoError(t, err)
	var sample object
	require.NoError(t, json.Unmarshal(body, &sample))
	return sample
}

// asyncAPI is the document of this wire.
func asyncAPI(t *testing.T) object {
	t.Helper()
	s := newSchemas(t)
	channel, messages := object{}, object{}
	for _, k := range kinds {
		name := string(k.kind)
		data := s.ref(reflect.TypeFor[announce.AppEvent]())
		switch {
		case k.kind.IsAgent():
			data = s.ref(reflect.TypeFor[announce.Agent]())
		case k.kind.IsRoute():
			data = s.ref(reflect.TypeFor[announce.RouteEvent]())
		case k.kind.IsAlert():
			data = s.ref(reflect.TypeFor[announce.AlertEvent]())
		}
		channel[name] = object{"$ref": "#/components/messages/" + name}
		messages[name] = object{
			"name": name, "title": name, "summary": k.summary, "contentType": announce.ContentType,
			"payload":  envelope(k.kind, data),
			"bindings": object{"amqp": object{"messageType": name, "bindingVersion": "0.3.0"}},
			"examples": []object{{"name": name, "payload": decodedSample(t, k.kind)}},
		}
	}
	inQueue := object{}
	for name := range channel {
		inQueue[name] = object{"$ref": "#/channels/announcements/messages/" + name}
	}
	return object{
		"asyncapi": "3.0.0",
		"info": object{
			"title": "PipeOps announcements", "version": "1.0.0",
			"description": "What the control plane tells Runners of agents, Apps, public hosts and alerts, over RabbitMQ. Delivery is at least once and in order per agent; " +
				"sequence shows repeats and gaps. Skip fields and types that you do not know. docs/deployer/announcements.md says what a consumer must do.",
		},
		"defaultContentType": announce.ContentType,
		"servers": object{"broker": object{
			"host": "rabbitmq.example.com:5671", "pathname": "/", "protocol": "amqps", "protocolVersion": "0-9-1",
			"description": "RabbitMQ, TLS only. Several addresses are equal.",
			"security":    []object{{"$ref": "#/components/securitySchemes/account"}},
		}},
		"channels": object{
			"announcements": object{
				"address": rabbitmq.Exchange, "messages": channel,
				"description": "The routing key is the event's type; the keys to.RUNNER.TYPE, one for each Runner that may see the agent, are given as BCC.",
				"bindings":    object{"amqp": object{"is": "routingKey", "exchange": object{"name": rabbitmq.Exchange, "type": "topic", "durable": true, "autoDelete": false, "vhost": "/"}, "bindingVersion": "0.3.0"}},
			},
			"runnerQueue": object{
				"address": rabbitmq.RunnerQueue("{runner}").Name, "messages": inQueue,
				"parameters": object{"runner": object{"description": "The Runner's name."}},
				"description": "A Runner's quorum queue, bound with to.RUNNER.# to the exchange. RabbitMQ refuses a declaration with other arguments than x-arguments. " +
					"One of those who read it gets all; the others stand by. What it rejects goes to " + rabbitmq.DeadExchange + ".",
				"bindings": object{"amqp": object{"is": "queue", "queue": object{
					"name": rabbitmq.RunnerQueue("{runner}").Name, "durable": true, "exclusive": false, "autoDelete": false, "vhost": "/",
					"x-arguments": new(rabbitmq.RunnerQueue("{runner}")).Arguments(),
				}, "bindingVersion": "0.3.0"}},
				"x-binding-keys": []string{"to.{runner}.#"},
			},
		},
		"operations": object{
			"announce": object{"action": "send", "channel": object{"$ref": "#/channels/announcements"},
				"summary":  "The control plane announces: persistent, mandatory, confirmed.",
				"bindings": object{"amqp": object{"deliveryMode": 2, "mandatory": true, "timestamp": true, "bcc": []string{"to.RUNNER.TYPE"}, "bindingVersion": "0.3.0"}}},
			"hear": object{"action": "receive", "channel": object{"$ref": "#/channels/runnerQueue"},
				"summary":  "A Runner hears what is for it.",
				"bindings": object{"amqp": object{"ack": true, "bindingVersion": "0.3.0"}}},
		},
		"components": object{
			"schemas": s.made, "messages": messages,
			"securitySchemes": object{"account": object{"type": "userPassword", "description": "A Runner's own account: docs/operator/runners.md."}},
		},
	}
}

// envelope is CloudEvents 1.0 in structured JSON, as this wire uses it.
func envelope(kind announce.Type, data object) object {
	text := func(more object) object {
		more["type"] = "string"
		return more
	}
	return object{
		"type":     "object",
		"required": []string{"agentid", "data", "datacontenttype", "id", "sequence", "source", "specversion", "time", "type"},
		"properties": object{
			"specversion":     text(object{"const": "1.0"}),
			"id":              text(object{"minLength": 1, "maxLength": 128, "description": "The same for the same event, however often it comes."}),
			"type":            text(object{"const": string(kind)}),
			"source":          text(object{"minLength": 1}),
			"subject":         text(object{"description": "AGENT, or AGENT/NAMESPACE/APP."}),
			"time":            text(object{"format": "date-time"}),
			"agentid":         text(object{"pattern": "^[a-z0-9-]{1,63}$"}),
			"sequence":        text(object{"pattern": "^[1-9][0-9]*$", "description": "Counts the events of one agent from 1, without gaps; 64 bits, so it is a string."}),
			"datacontenttype": text(object{"const": "application/json"}),
			"data":            data,
		},
	}
}

func encodedAsyncAPI(t *testing.T) []byte {
	t.Helper()
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	require.NoError(t, e.Encode(asyncAPI(t)))
	return out.Bytes()
}

func TestAsyncAPIIsCommitted(t *testing.T) {
	now := encodedAsyncAPI(t)
	if *update {
		require.NoError(t, os.WriteFile(asyncAPIFile, now, 0o644))
	}
	committed, err := os.ReadFile(asyncAPIFile)
	require.NoError(t, err)
	if !bytes.Equal(now, committed) {
		t.Errorf("%s is not what the code says; run: go generate ./runnerapi/announce", asyncAPIFile)
	}
}

// TestAsyncAPIHoldsTogether looks up all references, and what AsyncAPI 3.0 asks for.
func TestAsyncAPIHoldsTogether(t *testing.T) {
	doc := readDocument(t, asyncAPIFile)
	references := 0
	walk(doc, func(o object) {
		if ref, ok := o["$ref"].(string); ok {
			references++
			assert.NotNil(t, lookUp(doc, ref), "%s is nowhere", ref)
		}
	})
	assert.Greater(t, references, 30)
	assert.Equal(t, "3.0.0", doc["asyncapi"])
	for _, o := range doc["operations"].(object) {
		operation := o.(object)
		assert.Contains(t, []any{"send", "receive"}, operation["action"])
		assert.NotNil(t, operation["channel"])
	}
	described := make([]string, len(kinds))
	for i, k := range kinds {
		described[i] = string(k.kind)
	}
	assert.ElementsMatch(t, constants.OfType(t, ".", "Type"), described, "kinds has each type of events")
}

func readDocument(t *testing.T, file string) object {
	t.Helper()
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	var doc object
	require.NoError(t, json.Unmarshal(raw, &doc))
	return doc
}

func walk(v any, visit func(object)) {
	switch v := v.(type) {
	case object:
		visit(v)
		for _, name := range sortedKeys(v) {
			walk(v[name], visit)
		}
	case []any:
		for _, item := range v {
			walk(item, visit)
		}
	}
}

func sortedKeys(o object) []string {
	keys := make([]string, 0, len(o))
	for k := range o {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// lookUp follows a reference within the document.
func lookUp(doc object, ref string) object {
	at := doc
	for part := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
		at, _ = at[part].(object)
	}
	return at
}
