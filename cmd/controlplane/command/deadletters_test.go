package command

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/publish"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/rabbitmq"
	"github.com/pipeops/pipeops-vm-agent/test/broker"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
)

// bury writes a dead letter as a Runner may.
func bury(t *testing.T, b broker.Endpoint, id string) {
	t.Helper()
	broker.PublishAsRunner(t, b, rabbitmq.DeadExchange, "agent.online", amqp.Publishing{
		MessageId: id, DeliveryMode: amqp.Persistent, Body: []byte("not an event"),
		Headers: amqp.Table{"x-death": []any{amqp.Table{"queue": "pipeops.runner.ci", "reason": "rejected", "count": int64(2), "time": time.Now()}}},
	})
}

func TestDeadLetter_Commands(t *testing.T) {
	b := rabbit.VHost(t)
	dir, urlFile := newData(t).Dir, filepath.Join(t.TempDir(), "url")
	require.NoError(t, os.WriteFile(urlFile, []byte(b.URL(broker.UserControlPlane)), 0o600))
	p := startServe(t, dir, "--broker-url-file", urlFile, "--broker-ca", b.CAFile())
	defer p.kill(t)
	p.awaitReady(t, `"ok: connected`) // the broker has the queues

	run := func(code int, args ...string) (out, errs string) {
		t.Helper()
		var stdout, stderr bytes.Buffer
		got := execute(t.Context(), append([]string{"dead-letter", "--data-dir", dir}, args...), streams{&stdout, &stderr})
		require.Equal(t, code, got, "%s", stderr.String())
		return stdout.String(), stderr.String()
	}
	_, said := run(0, "list")
	assert.Contains(t, said, "no dead letters")
	bury(t, b, "one")
	bury(t, b, "two")
	out, _ := run(0, "list")
	assert.Regexp(t, `(?m)^one +malformed .* pipeops.runner.ci +rejected +2 `, out)
	out, said = run(0, "list", "-o", "json", "--limit", "1")
	var letters []publish.DeadLetter
	require.NoError(t, json.Unmarshal([]byte(out), &letters))
	assert.Len(t, letters, 1)
	assert.Contains(t, said, "1 of 2; --limit shows more")
	_, said = run(1, "requeue", "one")
	assert.Contains(t, said, "one stays: the control plane did not write it")
	_, said = run(1, "delete", "three")
	assert.Contains(t, said, "1 of the IDs are not among the dead letters")
	_, said = run(0, "list", "--offline", "--broker-url-file", urlFile, "--broker-ca", b.CAFile(), "-o", "name")
	assert.Contains(t, said, "offline: working on the data directory "+dir+" itself")
	_, said = run(0, "delete", "one")
	assert.Contains(t, said, "1 deleted")
	_, said = run(2, "delete")
	assert.Contains(t, said, "or --all")
	p.awaitReady(t, "1 announcements were dead-lettered")
	_, said = run(0, "delete", "--all")
	assert.Contains(t, said, "1 deleted")
	block, err := harness.ShellWith("docs/deployer/announcements.md", "dead-letter list")
	require.NoError(t, err)
	commands := 0
	for line := range strings.Lines(block) {
		bury(t, b, "for the document")
		run(map[bool]int{true: 1}[strings.Contains(line, "requeue")], strings.Fields(line)[2:]...)
		commands++
	}
	assert.Equal(t, 4, commands)
	_, said = run(2, "list", "--offline")
	assert.Contains(t, said, "no broker is named")
}
