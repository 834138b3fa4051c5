package main

import (
	"bytes"
	"encoding/json"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/rabbitmq"
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
	{announce.AppProgressing, "A rollout of the App is in progress."},
	{announce.AppHealthy, "The App runs as its spec demands."},
	{announce.AppDegraded, "The App serves, but not as its spec demands. `cause`, `message` and `fix` explain it."},
	{announce.AppFailed, "The App does not serve. `cause`, `message` and `fix` explain it."},
	{announce.AppRemoved, "The App was removed."},
	{announce.RouteServing, "The gateway serves a public host from the agent."},
	{announce.RouteSuspended, "The gateway no longer serves a public host from the agent: `reason`."},
	{announce.AlertFiring, "An alert of the cluster's monitoring began to fire."},
	{announce.AlertResolved, "The alert is resolved."},
}

// asyncAPI returns the AsyncAPI document of the announcements, with the order of fields in its
// schemas.
func asyncAPI(folder string) (doc object, order map[string][]string, err error) {
	s, err := newSchemas(folder)
	if err != nil {
		return nil, nil, err
	}
	channel, messages := object{}, object{}
	for _, k := range kinds {
		name := string(k.kind)
		data := s.ref(dataOf(k.kind))
		sample, err := encodedSample(k.kind)
		if err != nil {
			return nil, nil, err
		}
		channel[name] = object{"$ref": "#/components/messages/" + name}
		messages[name] = object{
			"name": name, "title": name, "summary": k.summary, "contentType": announce.ContentType,
			"payload":  envelope(k.kind, data),
			"bindings": object{"amqp": object{"messageType": name, "bindingVersion": "0.3.0"}},
			"examples": []object{{"name": name, "payload": sample}},
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
				"sequence and previous show repeats and gaps. Skip unknown fields and types. docs/deployer/announcements.md lists what a consumer must do.",
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
					"Of several readers, one gets all messages and the others are on standby. Rejected messages go to " + rabbitmq.DeadExchange + ".",
				"bindings": object{"amqp": object{"is": "queue", "queue": object{
					"name": rabbitmq.RunnerQueue("{runner}").Name, "durable": true, "exclusive": false, "autoDelete": false, "vhost": "/",
					"x-arguments": new(rabbitmq.RunnerQueue("{runner}")).Arguments(),
				}, "bindingVersion": "0.3.0"}},
				"x-binding-keys": []string{"to.{runner}.#"},
			},
		},
		"operations": object{
			"announce": object{"action": "send", "channel": object{"$ref": "#/channels/announcements"},
				"summary":  "The control plane announces: persistent, confirmed.",
				"bindings": object{"amqp": object{"deliveryMode": 2, "timestamp": true, "bcc": []string{"to.RUNNER.TYPE"}, "bindingVersion": "0.3.0"}}},
			"hear": object{"action": "receive", "channel": object{"$ref": "#/channels/runnerQueue"},
				"summary":  "A Runner receives what is for it.",
				"bindings": object{"amqp": object{"ack": true, "bindingVersion": "0.3.0"}}},
		},
		"components": object{
			"schemas": s.made, "messages": messages,
			"securitySchemes": object{"account": object{"type": "userPassword", "description": "A Runner's own account: docs/operator/runners.md."}},
		},
	}, s.order, s.undescribed()
}

// envelope is CloudEvents 1.0 in structured JSON, as this wire uses it.
func envelope(kind announce.Type, data object) object {
	text := func(more object) object {
		more["type"] = "string"
		return more
	}
	return object{
		"type":     "object",
		"required": []string{"agentid", "data", "datacontenttype", "id", "previous", "sequence", "source", "specversion", "time", "type"},
		"properties": object{
			"specversion":     text(object{"const": "1.0", "description": "The version of CloudEvents."}),
			"id":              text(object{"minLength": 1, "maxLength": 128, "description": "Identifies the event: a repeat has the same ID."}),
			"type":            text(object{"const": announce.TypePrefix + string(kind), "description": "The type. The routing key is the part after " + announce.TypePrefix + "."}),
			"source":          text(object{"minLength": 1, "description": "Names the control plane's installation and the agent, as a URI reference."}),
			"subject":         text(object{"description": "AGENT, AGENT/NAMESPACE/APP or AGENT/HOST."}),
			"time":            text(object{"format": "date-time", "description": "When it happened."}),
			"agentid":         text(object{"pattern": "^[a-z0-9-]{1,63}$", "description": "The agent's ID."}),
			"sequence":        text(object{"pattern": "^[0-9]{20}$", "description": "Orders the events of one source: each is higher than the one before, as a number and as text."}),
			"previous":        text(object{"pattern": "^[0-9]{20}$", "description": "The sequence of the agent's event before, or zeros. It differs from that of your last event if you missed events."}),
			"datacontenttype": text(object{"const": "application/json", "description": "The content type of data."}),
			"data":            data,
		},
	}
}

func encodedAsyncAPI(doc object) ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	err := e.Encode(doc)
	return out.Bytes(), err
}
