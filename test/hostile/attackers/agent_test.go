package attackers

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/test/hostile"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// TestControlPlane_HostileAgent enrols an agent that means ill with the control plane.
func TestControlPlane_HostileAgent(t *testing.T) {
	suite.Release(t, "attackers of the whole system")
	token, err := sys.CreateToken(t.Context())
	require.NoError(t, err)
	c, id := enrol(t, token, "evil")
	joins := newJoiner(t).attempts(c)
	s := open(t, func() {
		for range 3 {
			got := c.call(t.Context(), http.MethodPost, "/v1/agent/heartbeat", heartbeat(""), nil)
			require.Equal(t, http.StatusOK, got.status, "%v", got)
		}
		got := c.call(t.Context(), http.MethodPut, "/v1/agent/routes", `{"routes":[`+routes(1000)+`]}`, nil)
		require.Equal(t, http.StatusOK, got.status, "%v", got)
	})
	s.try(t, c, append(asAgent(token, id), joins...))
	out, err := sys.ControlPlane(t.Context(), "agent", "get", "evil")
	require.NoError(t, err)
	assert.NoError(t, plain(out), "what the operator sees")
	s.close()
	got := newCaller(t, honest).call(t.Context(), http.MethodGet, "/v1/cluster", nil, nil)
	assert.Equal(t, http.StatusOK, got.status, "others are served: %v", got)
}

// enrol registers an agent, and returns what makes its calls at the control plane.
func enrol(t *testing.T, token, name string) (*caller, controlapi.Identity) {
	t.Helper()
	id := hostile.Enrol(t, sys.APIURL(), token, name)
	host := strings.TrimPrefix(sys.APIURL(), "https://")
	c := &caller{host: host, edge: host, always: http.Header{"Pipeops-Cluster": {name}}}
	c.tls = &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: id.Roots, Certificates: []tls.Certificate{id.Certificate}}
	c.client, c.http1 = c.over(t, "h2"), c.over(t, "http/1.1")
	return c, id.Identity
}

// heartbeat is a good one, with more.
func heartbeat(more string) string {
	return fmt.Sprintf(`{"clock":%q,"agentVersion":"1","runnerApiVersion":"v1","kubernetesVersion":"v1.36.0","distribution":"k3s","tunnelPhase":"connected",`+
		`"capacity":{"nodes":1,"readyNodes":1,"pods":1,"runningPods":1,"cpuMillis":1,"memoryBytes":1}%s}`, time.Now().UTC().Format(time.RFC3339), more)
}

func routes(n int) string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf(`{"host":"a%d.example.com","path":"/","pathType":"Prefix","tls":false,"namespace":"a","app":"a","service":"a","port":80,"ready":true}`, i)
	}
	return strings.Join(out, ",")
}

// event is a good one of an App, but for its ID, name and image.
func event(id, name, image string) string {
	return fmt.Sprintf(`{"id":"%s","type":"app.failed","time":%q,"app":{"namespace":"a","name":"%s","image":"%s","generation":1,"replicas":1,"ready":0}}`,
		id, time.Now().UTC().Format(time.RFC3339), name, image)
}

func events(n int, name string) string {
	out := make([]string, n)
	for i := range out {
		out[i] = event(fmt.Sprintf("e-%d", i), name, "a")
	}
	return `{"events":[` + strings.Join(out, ",") + `]}`
}

func asAgent(token string, id controlapi.Identity) []attempt {
	post := func(name, tries, path string, body any, want ...string) attempt {
		return attempt{name: name, tries: tries, want: want, do: send(http.MethodPost, "/v1/agent/"+path, body)}
	}
	beat := func(name, tries, more string, want ...string) attempt {
		return post("a heartbeat of "+name, tries, "heartbeat", heartbeat(more), want...)
	}
	bad := []string{"422 invalid", "400 bad_request"}
	closed := []string{"401 unauthorized", "401 certificate_unknown", "403 forbidden", "404 not_found", "405 not_allowed", "404"}
	return []attempt{
		beat("control characters", "write into an operator's terminal", `,"provider":"\u001b[2J"`, bad...),
		beat("direction marks", "write into an operator's terminal", `,"provider":"\u202e"`, bad...),
		beat("a name of a MiB", "fill the database", `,"instance":"`+strings.Repeat("a", 1<<20)+`"`, append(bad, "413 too_large")...),
		beat("unknown fields", "reach through to the database", `,"agentId":"`+id.AgentID+`","revoked":false`, append(bad, "200")...),
		beat("fields twice", "have two readings", `,"provider":"a","provider":"b"`, append(bad, "200")...),
		beat("numbers out of range", "overflow a counter", `,"standby":99999999999999999999`, bad...),
		beat("another's ticket", "pass for another process", `,"process":"a","ticket":"b"`, "200", "409 conflict", "409 duplicate_instance", "422 invalid"),
		post("a heartbeat that is null", "crash the reader", "heartbeat", "null", bad...),
		post("a heartbeat of brackets", "overflow a stack", "heartbeat", strings.Repeat("[", 60_000), bad...),
		post("a heartbeat of 64 MiB", "fill the control plane's memory", "heartbeat", endless(64<<20, `{"a":"`), "413 too_large"),
		post("a heartbeat in gzip", "unpack to gigabytes", "heartbeat", "\x1f\x8b\x08", bad...),
		post("events of control characters", "write into a terminal", "events", `{"events":[`+event("e", `a\u001b[2J`, "a")+`]}`, bad...),
		post("events of direction marks", "write into a terminal", "events", `{"events":[`+event("e", `a\u202e`, "a")+`]}`, bad...),
		post("an image of a MiB", "fill the outbox", "events", `{"events":[`+event("e", "a", strings.Repeat("a", 1<<20))+`]}`, append(bad, "413 too_large")...),
		post("thousands of events", "fill the outbox", "events", events(5000, "a"), append(bad, "413 too_large")...),
		post("an unknown event", "have it announced", "events", strings.ReplaceAll(events(1, "a"), "app.failed", "agent.revoked"), bad...),
		post("no events", "crash the reader", "events", `{"events":null}`, append(bad, "200", "204")...),
		post("an event in the year 9999", "stand before all others", "events", strings.ReplaceAll(events(1, "future"), time.Now().UTC().Format("2006"), "9999"), append(bad, "200", "204")...),
		post("another CSR", "have a certificate for other names", "renew", `{"csr":"garbage"}`, append(bad, "404 not_found")...),
		post("a CSR of 64 KiB", "fill memory", "renew", `{"csr":"`+strings.Repeat("a", 64<<10)+`"}`, append(bad, "404 not_found", "413 too_large")...),
		post("audit records of control characters", "write into a log", "audit", `{"records":[{"seq":1,"runner":"\u001b[2J"}]}`, append(bad, "200")...),
		post("audit records of 64 MiB", "fill the database", "audit", endless(64<<20, `{"records":[`), "413 too_large"),
		{name: "routes of a MiB", tries: "fill the database", want: append([]string{"413 too_large"}, bad...), do: send(http.MethodPut, "/v1/agent/routes", `{"routes":[`+routes(9000)+`]}`)},
		{name: "a route twice", tries: "have two readings", want: bad, do: send(http.MethodPut, "/v1/agent/routes", `{"routes":[`+routes(1)+","+routes(1)+`]}`)},
		{name: "a route of control characters", tries: "write into a terminal", want: bad, do: send(http.MethodPut, "/v1/agent/routes", strings.ReplaceAll(`{"routes":[`+routes(1)+`]}`, "a0.example.com", `\u001b[2J`))},
		{name: "the Runners' list of agents", tries: "see other agents", want: closed, do: send(http.MethodGet, "/v1/agents", nil)},
		{name: "another agent by name", tries: "see another agent", want: closed, do: send(http.MethodGet, "/v1/agents/"+agentName, nil)},
		{name: "a Runner's certificate", tries: "be a Runner", want: append(closed, bad...), do: send(http.MethodPost, "/v1/runner/certificate", `{"csr":"a"}`)},
		{name: "a path that climbs", tries: "mean another path", want: []string{"307", "404 not_found"}, do: send(http.MethodGet, "/v1/agent/../agents", nil)},
		{name: "an encoded path that climbs", tries: "mean another path", want: closed, do: send(http.MethodGet, "/v1/agent/%2e%2e/agents", nil)},
		{name: "metrics", tries: "see how busy others are", want: closed, do: send(http.MethodGet, "/metrics", nil)},
		{name: "profiles", tries: "read memory", want: closed, do: send(http.MethodGet, "/debug/pprof/heap", nil)},
		{name: "the token again", tries: "enrol another agent by a used token", want: append(closed, bad...), do: send(http.MethodPost, "/v1/agents/register", `{"name":"a","clusterUID":"b","csr":"c"}`, "Authorization", "Bearer "+token)},
		{name: "another agent's identity in a header", tries: "be another agent", want: []string{"200"}, do: send(http.MethodPost, "/v1/agent/heartbeat", heartbeat(""), "X-Agent-Id", agentName, "X-Forwarded-Client-Cert", "a")},
		{name: "a header of a MiB", tries: "fill memory", want: []string{"431 too_large"}, do: send(http.MethodPost, "/v1/agent/heartbeat", heartbeat(""), "X-A", strings.Repeat("a", 1<<20), "Connection", "keep-alive")},
	}
}
