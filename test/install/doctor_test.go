package install

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// diagnosis is one object of `install.sh doctor -o json`.
type diagnosis struct{ Name, State, Message, Fix string }

const (
	agentRuns   = "deployment 1 1 1 1 1 1 1\nreplicaset abc 1\npod pipeops-agent-abc-x abc Running 0 -\n"
	agentReport = "STATUS    CHECK       FOUND\nok        config      /etc/pipeops\n" +
		"failed    tcp         203.0.113.7:443: \"refused\" (fix: open the firewall (outwards) for it)\n" +
		"warning   tls         the clock is 40s off (fix: timedatectl set-ntp true)\nskipped   frp         tcp failed\n" +
		"ok        resource    a\nok        resource    b\nok        resource    c\nok        disk        9 GB\nok        memory      2 GB\n"
)

func TestDoctor_NamesFailure(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  []diagnosis // {kubectl} is the fake one
		not   string
	}{
		"the API is not reached": {
			files: map[string]string{"fails": "get --raw"},
			want:  []diagnosis{{"Kubernetes", "failed", "Unable to connect to the server: FAKE", "{kubectl} get nodes"}}, not: "agent",
		},
		"the agent is not ready": {
			files: map[string]string{"agent": "", "report": ""},
			want: []diagnosis{
				{"Kubernetes", "ok", "the API answers", ""},
				{"agent", "failed", "no pod yet", "{kubectl} -n pipeops logs -l app.kubernetes.io/name=pipeops-agent --tail 20"},
			}, not: "agent's own checks",
		},
		"the agent's own check": {
			files: map[string]string{"agent": agentRuns, "report": agentReport},
			want: []diagnosis{
				{"agent", "ok", "registered, tunnel up", ""},
				{"agent's own check tcp", "failed", `203.0.113.7:443: "refused"`, "open the firewall (outwards) for it"},
				{"agent's own check tls", "warning", "the clock is 40s off", "timedatectl set-ntp true"},
			}, not: "agent's own checks",
		},
		"the agent's checks do not run": {
			files: map[string]string{"agent": agentRuns, "report": "", "fails": " exec "},
			want: []diagnosis{{"agent's own checks", "failed", "Unable to connect to the server: FAKE",
				"{kubectl} -n pipeops exec pipeops-agent-abc-x -- /pipeops-agent doctor"}}, not: "agent's own check tcp",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := newExistingCluster(t, c.files)
			said, code := cluster.script(t, "doctor")
			assert.Equal(t, 4, code, said)
			assert.Contains(t, said, "problems\n")
			text, code := cluster.script(t, "doctor", "-o", "json")
			assert.Equal(t, 4, code, text)
			var found []diagnosis
			require.NoError(t, json.Unmarshal([]byte(text), &found), text)
			for _, want := range c.want {
				want.Fix = strings.ReplaceAll(want.Fix, "{kubectl}", cluster.dir+"/kubectl")
				assert.Contains(t, found, want, text)
				line := map[string]string{"ok": "ok    ", "failed": "FAIL  ", "warning": "warn  "}[want.State] + want.Name + ": " + want.Message
				if want.Fix != "" {
					line += " (fix: " + want.Fix + ")"
				}
				assert.Contains(t, said, line+"\n")
			}
			for _, f := range found {
				assert.NotEqual(t, c.not, f.Name)
				assert.Equal(t, f.State == "failed" || f.State == "warning", f.Fix != "", f)
			}
		})
	}
}

func TestDoctor_Healthy(t *testing.T) {
	cluster := newExistingCluster(t, map[string]string{"agent": agentRuns, "report": "STATUS  CHECK  FOUND\nok      tcp    reached\n"})
	said, _ := cluster.script(t, "doctor")
	assert.Contains(t, said, "ok    agent: registered, tunnel up\nok    agent's own checks: none failed\n")
}

func TestInstall_RefusesOutput(t *testing.T) {
	for _, args := range [][]string{{"doctor", "-o", "env"}, {"uninstall", "-o", "json"}, {"install", "-o", "table"}, {"cluster-info", "-o", "xml"}} {
		said, code := newExistingCluster(t, nil).script(t, args...)
		assert.Equal(t, 2, code, said)
		assert.Contains(t, said, "error: -o ")
	}
}
