package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// auditor keeps records in memory.
type auditor struct {
	mu      sync.Mutex
	records []runnerapi.AuditRecord
	full    atomic.Bool
}

func (a *auditor) Record(r runnerapi.AuditRecord) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.records = append(a.records, r)
}

// Keep fails while the auditor is full.
func (a *auditor) Keep(_ context.Context, r runnerapi.AuditRecord) error {
	if a.full.Load() {
		return errors.New("no room")
	}
	a.Record(r)
	return nil
}

func (a *auditor) List(context.Context, int64, int) (runnerapi.AuditList, error) {
	return runnerapi.AuditList{}, nil
}

// Find returns the filter as the command of a call.
func (a *auditor) Find(_ context.Context, f runnerapi.AuditFilter, _ func(runnerapi.AuditRecord) bool) (runnerapi.AuditList, error) {
	return runnerapi.AuditList{Older: 7, Items: []runnerapi.AuditCall{{AuditRecord: runnerapi.AuditRecord{Time: time.Now(), Outcome: runnerapi.AuditDone, Command: fmt.Sprintf("%+v", f)}}}}, nil
}

func (a *auditor) all() []runnerapi.AuditRecord {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.records)
}

// take returns the records since the last take.
func (a *auditor) take(t *testing.T, want int) []runnerapi.AuditRecord {
	t.Helper()
	var out []runnerapi.AuditRecord
	await.Until(t, fmt.Sprint(want, " records"), func() bool { // a record comes after the answer
		a.mu.Lock()
		defer a.mu.Unlock()
		if len(a.records) < want {
			return false
		}
		out, a.records = a.records, nil
		return true
	})
	require.Len(t, out, want)
	return out
}

func watched(t *testing.T, p backend.Policy) (*runnertest.Agent, *auditor) {
	t.Helper()
	agent, log := runnertest.New(t, runnertest.NewBackend()), &auditor{}
	agent.Policy, agent.Audit, agent.Kubernetes = p, log, newAPIServer(t)
	agent.Start()
	return agent, log
}

// The examples of all calls are sent as they are, and then with a policy that refuses them.
func TestAudit_RecordsEveryCommand(t *testing.T) {
	p := newAsked(func(runnerapi.Intent) error { return nil })
	agent, log := watched(t, p)
	r := newRaw(t, agent)
	send := func(c runnerapi.Call) *http.Response {
		path, _ := examplePath(c)
		resp, _ := r.do(c.Method, path, c.Body, "Content-Type", "application/json", "Request-Id", "req-"+c.ID)
		return resp
	}
	for _, c := range runnerapi.Calls() {
		if c.Access == runnerapi.Open || c.Access == runnerapi.Reads {
			continue
		}
		resp := send(c)
		got := log.take(t, 1)[0]
		assert.Equal(t, c.ID, got.Command)
		assert.Equal(t, runnertest.RunnerName, got.Runner)
		assert.NotEmpty(t, got.Certificate)
		assert.Equal(t, "req-"+c.ID, got.RequestID)
		assert.Equal(t, resp.StatusCode, got.Status)
		assert.Equal(t, resp.Header.Get("Operation-Id"), got.Operation)
		want := runnerapi.AuditDone
		if c.Upgrades() { // it asks for no WebSocket; exec_test.go does
			want = runnerapi.AuditRefused
		}
		assert.Equal(t, want, got.Outcome, c.ID)
		assert.WithinDuration(t, time.Now(), got.Time, time.Minute)
	}
	p.become(refuseAll)
	for _, c := range runnerapi.Calls() {
		if c.Access == runnerapi.Open {
			continue
		}
		send(c)
		got := log.take(t, 1)[0]
		assert.Equal(t, c.ID, got.Command, "a refusal is recorded of reading too")
		assert.Equal(t, runnerapi.AuditRefused, got.Outcome)
		assert.Equal(t, runnerapi.CodePolicyDenied, got.Code)
		assert.Contains(t, got.Message, `rule "none"`)
	}
}

const marked = "hunter2-is-secret"

// The mark is sent wherever a secret may be, in calls that succeed and in calls that fail.
func TestAudit_HidesSecrets(t *testing.T) {
	agent, log := watched(t, runnertest.AllowAll{})
	r := newRaw(t, agent)
	r.do(http.MethodGet, "/v1/namespaces", "")
	const app, secret = "/v1/namespaces/production/apps/web", "/v1/namespaces/production/secrets/web"
	bodies := map[string][]string{
		"PUT " + secret: {
			`{"data":{"image":"MARK","name":"MARK","A":"MARK"}}`, `{"binaryData":{"key":"aHVudGVyMi1pcy1zZWNyZXQ="}}`,
			`{"data":"MARK"}`, `{"key":"MARK","image":"MARK","type":{"name":"MARK"}}`, `{"data":{"a":{"image":"MARK"}}}`, `{"dat":{"a":"MARK"}}`, `"MARK"`, `MARK`, `{"data":{"bad key":"MARK"}}`,
		},
		"PUT /v1/namespaces/production/configmaps/web": {`{"data":{"host":"MARK"}}`},
		"PUT " + app: {
			`{"image":"a","env":[{"name":"A","value":"MARK"}],"args":["MARK"],"command":["MARK","--name=MARK"]}`,
			`{"image":"a","probes":{"readiness":{"exec":["MARK"]}},"podAnnotations":{"name":"MARK"},"podLabels":{"host":"MARK"}}`,
			`{"image":"a","initContainers":[{"name":"i","env":[{"name":"B","value":"MARK"}],"args":["MARK"]}]}`,
			`{"image":"a","ingress":{"hosts":[{"host":"a.example.com"}],"annotations":{"name":"MARK"}}}`,
			`{"image":"a","value":"MARK"}`, `{"image":["MARK"],"x":{"env":"MARK"}}`,
			`{"image":"` + strings.Repeat("a", 4000) + `","env":[{"name":"A","value":"MARK"}]}`,
		},
		"PUT /v1/namespaces/staging":              {`{"labels":{"name":"MARK"}}`},
		"POST " + app + "/restart?dryRun=MARK":    {""},
		"POST " + app + "/restart?password=MARK":  {""},
		"DELETE " + secret + "?token=MARK&wait=1": {""},
	}
	sent := 0
	for call, all := range bodies {
		method, path, _ := strings.Cut(call, " ")
		for _, body := range all {
			if strings.Contains(path, "dryRun=MARK") {
				path = strings.ReplaceAll(path, "dryRun=MARK", "dryRun=perhaps")
			}
			r.do(method, strings.ReplaceAll(path, "MARK", marked), strings.ReplaceAll(body, "MARK", marked), "Content-Type", "application/json")
			sent++
		}
	}
	for _, record := range log.take(t, sent) {
		text, err := json.Marshal(record)
		require.NoError(t, err)
		assert.NotContains(t, string(text), marked)
		assert.NotContains(t, string(text), "aHVudGVy")
		assert.Less(t, len(text), runnerapi.MaxAuditLine)
	}
}

func TestAudit_Arguments(t *testing.T) {
	agent, log := watched(t, runnertest.AllowAll{})
	r := newRaw(t, agent)
	r.do(http.MethodPut, "/v1/namespaces/production/apps/web?dryRun=true",
		`{"image":"a/b:1","replicas":2,"env":[{"name":"A","value":"x"},{"name":"B","secret":{"name":"s","key":"k"}}],"envFrom":[{"secret":"web-env"}]}`,
		"Content-Type", "application/json")
	assert.JSONEq(t, `{"dryRun":"true","body":{"image":"a/b:1","replicas":2,
		"env":[{"name":"A","value":"***"},{"name":"B","secret":{"name":"s","key":"k"}}],"envFrom":[{"secret":"web-env"}]}}`,
		string(log.take(t, 1)[0].Arguments))
	r.do(http.MethodPut, "/v1/namespaces/production/secrets/web", `{"data":{"A":"x","B":"y"}}`, "Content-Type", "application/json")
	assert.JSONEq(t, `{"body":{"data":{"A":"***","B":"***"}}}`, string(log.take(t, 1)[0].Arguments))
}

// Each field of a filter arrives, and a wrong one is named.
func TestAudit_Find(t *testing.T) {
	agent, _ := watched(t, runnertest.AllowAll{})
	filter := runnerapi.AuditFilter{
		By: "ci", Command: "put", Namespace: "shop", App: "shop/web", Outcome: runnerapi.AuditDone, Text: "a b&c", Since: "2h", Until: "2026-11-21", Before: 9, Limit: 3,
	}
	list, err := agent.Client().Audit().Find(t.Context(), filter)
	require.NoError(t, err)
	require.Len(t, list.Items, 1)
	assert.Equal(t, fmt.Sprintf("%+v", filter), list.Items[0].Command)
	assert.EqualValues(t, 7, list.Older)

	r := newRaw(t, agent)
	for query, field := range map[string]string{"outcome=x": "query.outcome", "limit=5000": "query.limit", "after=1&by=ci": "query.after"} {
		resp, answer := r.do(http.MethodGet, "/v1/audit?"+query, "")
		assert.Equal(t, http.StatusUnprocessableEntity, resp.StatusCode, query)
		assert.Contains(t, string(answer), `"field":"`+field+`"`)
	}
}

func FuzzDecodeAuditRecord(f *testing.F) {
	f.Add([]byte(`{"seq":1,"prev":"","time":"2026-01-01T00:00:00Z","arguments":{"a":1}}`))
	f.Add([]byte(`{"seq":-1}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := runnerapi.DecodeAuditRecord(line)
		if err == nil && (r.Seq < 1 || len(line) > runnerapi.MaxAuditLine) {
			t.Fatalf("taken: %+v", r)
		}
	})
}

// Where the policy requires it, a command is recorded first, and refused where the record cannot
// be stored. Reads need no record.
func TestAudit_RequiredBeforeCommand(t *testing.T) {
	p := newAsked(func(runnerapi.Intent) error { return nil })
	p.audited = true
	agent, log := watched(t, p)
	c := agent.ClientWith(func(c *client.Config) { c.Patience = time.Millisecond })
	_, err := c.Secrets().Set(t.Context(), web, runnerapi.SecretSpec{Data: map[string]string{"A": "hidden"}}, runnerapi.WriteOptions{})
	require.NoError(t, err)
	records := log.take(t, 2)
	assert.Equal(t, []runnerapi.AuditOutcome{runnerapi.AuditBegun, runnerapi.AuditDone}, []runnerapi.AuditOutcome{records[0].Outcome, records[1].Outcome})
	assert.Equal(t, records[1].RequestID, records[0].RequestID)
	assert.Equal(t, "put-secret", records[0].Command)
	assert.Zero(t, records[0].Status)

	log.full.Store(true)
	err = c.Secrets().Delete(t.Context(), web, runnerapi.WriteOptions{})
	assert.Equal(t, backend.CodeAuditUnavailable, problemOf(t, err).Code)
	_, err = c.Secrets().Get(t.Context(), web)
	require.NoError(t, err, "it was not deleted, and reading is allowed")
}

// A body of a few MiB that stands for more than a million values is refused before it is
// decoded, and is not decoded for its record either.
func TestAudit_SkipsRefusedBody(t *testing.T) {
	agent, log := watched(t, newAsked(func(runnerapi.Intent) error { return nil }))
	r := newRaw(t, agent)
	body := `{"values":[` + strings.Repeat("{},", runnerapi.MaxReleaseBody/3-8) + `{}]}`
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	resp, text := r.do("PUT", guidePath, body, "Content-Type", "application/json")
	assert.Equal(t, 400, resp.StatusCode, string(text))
	record := log.take(t, 1)[0]
	runtime.ReadMemStats(&after)
	assert.NotContains(t, string(record.Arguments), "body")
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(48<<20), "some copies of the text, and no values")
}

// kept is an audit log of these records.
type kept []runnerapi.AuditCall

func (kept) Record(runnerapi.AuditRecord) {}

func (kept) Keep(context.Context, runnerapi.AuditRecord) error { return nil }

func (k kept) List(_ context.Context, after int64, limit int) (list runnerapi.AuditList, err error) {
	list.Items = slices.Clone(k[min(int(after), len(k)):min(int(after)+limit, len(k))])
	return list, nil
}

func (k kept) Find(_ context.Context, _ runnerapi.AuditFilter, visible func(runnerapi.AuditRecord) bool) (runnerapi.AuditList, error) {
	return runnerapi.AuditList{Items: slices.DeleteFunc(slices.Clone(k), func(c runnerapi.AuditCall) bool { return !visible(c.AuditRecord) })}, nil
}

// TestAudit_HidesOwnersRules: rules are about other Runners, too. The owner's own command reads the
// log where it is kept.
func TestAudit_HidesOwnersRules(t *testing.T) {
	agent := runnertest.New(t, runnertest.NewBackend())
	rule := json.RawMessage(`{"name":"payroll","runners":["hr"]}`)
	records := []runnerapi.AuditRecord{
		{Command: "policy-allow", Name: "payroll", Runner: runnerapi.AuditOwner, Arguments: rule},
		{Command: "pause-runners", Runner: runnerapi.AuditOwner},
		{Command: "chart-allow", Namespace: "production", Name: "web", Runner: runnerapi.AuditOwner, Arguments: rule},
		{Command: "pause-app", Namespace: "production", Name: "web", Runner: runnerapi.AuditOwner},
		{Command: "cordon-node", Name: "a", Runner: "ops", Arguments: json.RawMessage(`{}`)},
		{Command: "put-app", Namespace: "production", Name: "web", Runner: "ops", Arguments: json.RawMessage(`{}`)},
	}
	var log kept
	for n, r := range records {
		r.Seq, r.Outcome, r.Time = int64(n+1), runnerapi.AuditDone, time.Unix(int64(n+1), 0)
		log = append(log, runnerapi.AuditCall{AuditRecord: r})
	}
	agent.Audit = log
	agent.Start()
	for _, limit := range []int{1, 2, 100} {
		var seen []string
		for after := int64(0); ; {
			list, err := agent.Client().Audit().List(t.Context(), after, limit)
			require.NoError(t, err)
			if len(list.Items) == 0 {
				break
			}
			for _, r := range list.Items {
				seen, after = append(seen, r.Command), r.Seq
			}
		}
		assert.Equal(t, []string{"pause-app", "cordon-node", "put-app"}, seen, limit)
	}
	found, err := agent.Client().Audit().Find(t.Context(), runnerapi.AuditFilter{})
	require.NoError(t, err)
	assert.Len(t, found.Items, 3, "a search shows no more")
}
