package announce

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func testAgent(id string) Agent {
	used := int64(250)
	return Agent{
		ID: id, Name: "shop-" + id, State: StateOnline,
		Labels:            map[string]string{"region": "eu"},
		Endpoints:         []Endpoint{{Address: "edge.test:8443", ServerName: id + ".agents.test"}},
		KubernetesVersion: "v1.37.2",
		Capacity:          Capacity{Nodes: 1, Pods: 110, CPUMillis: 2000, MemoryBytes: 4 << 30, UsedCPUMillis: &used},
		RegisteredAt:      noon, LastSeen: noon,
	}
}

func agentEvent(t testing.TB, typ Type, id string, sequence uint64) Event {
	t.Helper()
	e, err := NewAgentEvent(typ, "/controlplane", testAgent(id), sequence, noon)
	require.NoError(t, err)
	return e
}

func appEvent(t testing.TB, typ Type, id string, sequence uint64) Event {
	t.Helper()
	app := AppEvent{Namespace: "shop", Name: "web", Image: "web:2", Replicas: 3, Ready: 1,
		Cause: "ImageNotFound", Message: "web:2 does not exist", Fix: "push it"}
	e, err := NewAppEvent(typ, "/controlplane", id, app, sequence, noon)
	require.NoError(t, err)
	return e
}

func TestEvent_RoundTrip(t *testing.T) {
	for _, e := range []Event{agentEvent(t, AgentOnline, "a1", 7), appEvent(t, AppFailed, "a1", 1<<63)} {
		body, err := e.Encode()
		require.NoError(t, err)
		got, err := Decode(body)
		require.NoError(t, err, "%v\n%s", err, body)
		assert.Equal(t, e, got)
	}
}

// Reads what other readers of CloudEvents do.
func TestEvent_IsCloudEvent(t *testing.T) {
	e := appEvent(t, AppFailed, "a1", 42)
	body, err := e.Encode()
	require.NoError(t, err)
	var got map[string]any
	require.NoError(t, json.Unmarshal(body, &got))
	want := map[string]any{
		"specversion": "1.0", "id": e.ID, "type": "io.pipeops.app.failed", "source": "/controlplane", "subject": "a1/shop/web",
		"time": "2026-01-02T12:00:00Z", "datacontenttype": "application/json", "agentid": "a1", "sequence": "00000000000000000042", "previous": "00000000000000000041",
	}
	for name, value := range want {
		assert.True(t, got[name] == value, "%s = %v, want %v", name, got[name], value)
	}
}

func TestEvent_Data(t *testing.T) {
	e := agentEvent(t, AgentOnline, "a1", 7)
	agent, err := e.Agent()
	require.NoError(t, err)
	assert.True(t, agent.Sequence == 7 && agent.Endpoints[0].ServerName == "a1.agents.test", "Agent() = %+v, %v", agent, err)
	assert.Nil(t, agent.Capacity.UsedMemoryBytes, "unknown memory use became a number")
	_, err = e.App()
	assert.Error(t, err, "an agent's event passes for an app's")
	a := appEvent(t, AppFailed, "a1", 8)
	if app, err := a.App(); err != nil || app.Fix != "push it" {
		t.Errorf("App() = %+v, %v", app, err)
	}
}

func TestDecode_NamesField(t *testing.T) {
	e := agentEvent(t, AgentOnline, "a1", 7)
	good, err := e.Encode()
	require.NoError(t, err)
	tests := []struct {
		name, field string
		change      func(m map[string]any)
	}{
		{"no specversion", "specversion", func(m map[string]any) { delete(m, "specversion") }},
		{"old specversion", "specversion", func(m map[string]any) { m["specversion"] = "0.3" }},
		{"no id", "id", func(m map[string]any) { m["id"] = "" }},
		{"long id", "id", func(m map[string]any) { m["id"] = strings.Repeat("x", 129) }},
		{"foreign type", "type", func(m map[string]any) { m["type"] = "com.example.thing" }},
		{"no source", "source", func(m map[string]any) { m["source"] = "" }},
		{"no time", "time", func(m map[string]any) { delete(m, "time") }},
		{"no agent", "agentid", func(m map[string]any) { delete(m, "agentid") }},
		{"agent not a name", "agentid", func(m map[string]any) { m["agentid"] = "a/../b" }},
		{"agent not text", "agentid", func(m map[string]any) { m["agentid"] = 5 }},
		{"no sequence", "sequence", func(m map[string]any) { delete(m, "sequence") }},
		{"sequence zero", "sequence", func(m map[string]any) { m["sequence"] = "0" }},
		{"sequence not a number", "sequence", func(m map[string]any) { m["sequence"] = "-1" }},
		{"sequence as a number", "sequence", func(m map[string]any) { m["sequence"] = 7 }},
		{"previous not before", "previous", func(m map[string]any) { m["previous"] = "7" }},
		{"no data", "data", func(m map[string]any) { delete(m, "data") }},
		{"data not an object", "data", func(m map[string]any) { m["data"] = "x" }},
		{"data of another agent", "data", func(m map[string]any) { m["agentid"] = "a2" }},
		{"state unknown", "data", func(m map[string]any) { m["data"].(map[string]any)["state"] = "asleep" }},
		{"base64", "data_base64", func(m map[string]any) { m["data_base64"] = "e30=" }},
		{"data not JSON", "datacontenttype", func(m map[string]any) { m["datacontenttype"] = "text/plain" }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var m map[string]any
			require.NoError(t, json.Unmarshal(good, &m))
			test.change(m)
			body, err := json.Marshal(m)
			require.NoError(t, err)
			_, err = Decode(body)
			var fault *FieldError
			require.ErrorAs(t, err, &fault)
			assert.Equal(t, test.field, fault.Field)
		})
	}
	for _, body := range []string{"", "null", "[]", `"x"`, "{", string(good) + "x", strings.Repeat(" ", MaxEventSize+1)} {
		_, err = Decode([]byte(body))
		assert.Error(t, err, "decoded %.20q", body)
	}
}

// An older reader must not fail on a newer sender.
func TestDecode_IgnoresUnknownFields(t *testing.T) {
	body := `{"specversion":"1.0","id":"1","type":"io.pipeops.agent.upgraded","source":"/x","time":"2026-01-02T12:00:00Z",
	 "agentid":"a1","sequence":"3","previous":"2","traceparent":"00-1-2-3","datacontenttype":"application/json",
	 "data":{"id":"a1","name":"n","state":"online","later":[1,2]}}`
	e, err := Decode([]byte(body))
	require.NoError(t, err)
	assert.True(t, e.Type == "agent.upgraded" && e.Sequence == 3, "Decode = %+v, %v", e, err)
}

// An unknown type is told from a malformed event.
func TestDecode_UnknownType(t *testing.T) {
	body := `{"specversion":"1.0","id":"1","type":"io.pipeops.node.cordoned","source":"/x","time":"2026-01-02T12:00:00Z",
	 "agentid":"a1","sequence":"3","previous":"2","datacontenttype":"application/json","data":{"node":"n1"}}`
	var unknown *UnknownTypeError
	if _, err := Decode([]byte(body)); !errors.As(err, &unknown) || unknown.Type != "node.cordoned" {
		t.Errorf("Decode = %v", err)
	}
	var fault *FieldError
	if _, err := Decode([]byte(strings.Replace(body, `"sequence":"3"`, `"sequence":"0"`, 1))); !errors.As(err, &fault) {
		t.Errorf("an unknown type hides what is malformed: %v", err)
	}
	page, err := (&TimelineBody{Events: []json.RawMessage{[]byte(body)}, More: true}).decode()
	require.NoError(t, err)
	assert.True(t, len(page.Events) == 0 && page.More, "a timeline with an unknown type is %+v, %v", page, err)
}

func TestEncode_RefusesInvalid(t *testing.T) {
	e := agentEvent(t, AgentOnline, "a1", 7)
	future := e
	future.Type = "node.cordoned"
	_, err := future.Encode()
	assert.Error(t, err, "encoded a type that readers skip")
	big := testAgent("a1")
	big.Labels = map[string]string{"x": strings.Repeat("y", MaxEventSize)}
	_, err = NewAgentEvent(AgentOnline, "/controlplane", big, 1, noon)
	assert.Error(t, err, "made an event that is too big to be sent")
	tooBig := e
	tooBig.Data = json.RawMessage(`{"id":"a1","name":"n","state":"online","later":"` + strings.Repeat("y", MaxEventSize) + `"}`)
	noTime := e
	noTime.Time = time.Time{}
	for name, event := range map[string]Event{"too big": tooBig, "no time": noTime, "empty": {}} {
		_, err := event.Encode()
		assert.Error(t, err, "%s: encoded", name)
	}
	_, err = NewAgentEvent(AppFailed, "/x", testAgent("a1"), 1, noon)
	assert.Error(t, err, "an agent passes as an app event")
	_, err = NewAppEvent(AppFailed, "/x", "a1", AppEvent{Namespace: "n"}, 1, noon)
	assert.Error(t, err, "an app without a name passes")
}

func FuzzDecode(f *testing.F) {
	for _, e := range []Event{agentEvent(f, AgentOnline, "a1", 7), appEvent(f, AppFailed, "a1", 8)} {
		body, err := e.Encode()
		require.NoError(f, err)
		f.Add(body)
	}
	f.Add([]byte(`{"datacontentencoding":1,"specversion":"0.3"}`))
	f.Add([]byte(`{"data_base64":"","specversion":"1.0"}`))
	f.Add([]byte(`{"data":{},"specversion":"1.0","specversion":"0.3","datacontenttype":"application/json"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		e, err := Decode(body)
		if err != nil {
			return
		}
		again, err := e.Encode()
		require.NoError(t, err, "decoded, but not to be encoded")
		e2, err := Decode(again)
		require.NoError(t, err, "encoded, but not to be decoded: %v\n%s", err, again)
		if e2.ID != e.ID || e2.Sequence != e.Sequence || e2.AgentID != e.AgentID || !e2.Time.Equal(e.Time) {
			t.Fatalf("changed on the way: %+v, %+v", e, e2)
		}
	})
}

func TestAppEvent_Pods(t *testing.T) {
	for want, e := range map[string]AppEvent{
		"2/3 ready": {Replicas: 3, Ready: 2}, "3/3 ready": {Replicas: 3, Ready: 4}, "stopped": {}, "last run: Succeeded": {LastRun: "Succeeded"}, "last run: none": {LastRun: "none", Replicas: 1},
	} {
		assert.Equal(t, want, e.Pods())
	}
}
