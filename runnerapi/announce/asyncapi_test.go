package announce_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
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

//go:generate go test . -run TestAsyncAPI_Committed -update

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
	{announce.AgentRegistered, "The agent registered. It is not online yet."},
	{announce.AgentOnline, "The agent's tunnel is up."},
	{announce.AgentOffline, "The agent has no tunnel, or missed three heartbeats."},
	{announce.AgentUpdated, "Labels, versions, capacity, hosts, components or the state of the self-update changed."},
	{announce.AgentRemoved, "The agent was revoked, or the Runner may no longer see it."},
	{announce.AgentCloned, "Another holder of the agent's identity was seen: `clones`."},
	{announce.AppProgressing, "A rollout of the App is under way."},
	{announce.AppHealthy, "The App runs as its spec demands."},
	{announce.AppDegraded, "The App serves, but not as its spec demands. `cause`, `message` and `fix` explain it."},
	{announce.AppFailed, "The App does not serve. `cause`, `message` and `fix` explain it."},
	{announce.AppRemoved, "The App was removed."},
	{announce.RouteServing, "The gateway serves a public host from the agent."},
	{announce.RouteSuspended, "The gateway no longer serves a public host from the agent: `reason`."},
	{announce.AlertFiring, "An alert of the cluster's monitoring began to fire."},
	{announce.AlertResolved, "The alert is resolved."},
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

// asyncAPI is the document of this wire, with the order of fields in its schemas.
func asyncAPI(t *testing.T) (doc object, order map[string][]string) {
	t.Helper()
	s := newSchemas(t)
	channel, messages := object{}, object{}
	for _, k := range kinds {
		name := string(k.kind)
		data := s.ref(dataOf(k.kind))
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
			"description": "What the control plane announces to Runners about agents, Apps, public hosts and alerts, over RabbitMQ. Delivery is at least once, and in order for each agent. " +
				"sequence shows repeats and gaps. Skip unknown fields and types. docs/deployer/announcements.md lists what a consumer must do.",
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
				"description": "The routing key is the event's type. The keys to.RUNNER.TYPE, one for each Runner that may see the agent, are in the header BCC.",
				"bindings":    object{"amqp": object{"is": "routingKey", "exchange": object{"name": rabbitmq.Exchange, "type": "topic", "durable": true, "autoDelete": false, "vhost": "/"}, "bindingVersion": "0.3.0"}},
			},
			"runnerQueue": object{
				"address": rabbitmq.RunnerQueue("{runner}").Name, "messages": inQueue,
				"parameters": object{"runner": object{"description": "The Runner's name."}},
				"description": "A Runner's quorum queue, bound with to.RUNNER.# to the exchange. RabbitMQ refuses a declaration with arguments that differ from x-arguments. " +
					"Of several readers, one gets all messages and the others stand by. Rejected messages go to " + rabbitmq.DeadExchange + ".",
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
				"summary":  "A Runner receives what is for it.",
				"bindings": object{"amqp": object{"ack": true, "bindingVersion": "0.3.0"}}},
		},
		"components": object{
			"schemas": s.made, "messages": messages,
			"securitySchemes": object{"account": object{"type": "userPassword", "description": "A Runner's own account: docs/operator/runners.md."}},
		},
	}, s.order
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
			"specversion":     text(object{"const": "1.0", "description": "The version of CloudEvents."}),
			"id":              text(object{"minLength": 1, "maxLength": 128, "description": "Identifies the event: a repeat has the same ID."}),
			"type":            text(object{"const": string(kind), "description": "The type, which is also the routing key."}),
			"source":          text(object{"minLength": 1, "description": "Names the control plane, as a URI reference."}),
			"subject":         text(object{"description": "AGENT, AGENT/NAMESPACE/APP or AGENT/HOST."}),
			"time":            text(object{"format": "date-time", "description": "When it happened."}),
			"agentid":         text(object{"pattern": "^[a-z0-9-]{1,63}$", "description": "The agent's ID."}),
			"sequence":        text(object{"pattern": "^[1-9][0-9]*$", "description": "Counts the events of one agent from 1, without gaps. It has 64 bits, so it is a string."}),
			"datacontenttype": text(object{"const": "application/json", "description": "The content type of data."}),
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
	doc, _ := asyncAPI(t)
	require.NoError(t, e.Encode(doc))
	return out.Bytes()
}

func TestAsyncAPI_Committed(t *testing.T) {
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

// Resolves all references, and checks what AsyncAPI 3.0 requires.
func TestAsyncAPI_Consistent(t *testing.T) {
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
