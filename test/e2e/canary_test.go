package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/broker"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// The kinds of secrets that are looked for.
const (
	ofSecret  = "a Secret's value"
	ofLeaving = "a Secret's old value"
	ofRefused = "a value that was refused"
	ofPull    = "a registry's password"
	ofEnv     = "a variable of an App's spec"
	ofToken   = "the enrolment token"
	ofAgent   = "the agent's private key"
	ofRunner  = "the Runner's private key"
	ofBroker  = "the control plane's password at RabbitMQ"
)

// TestSecret_Nowhere lives an App's whole life with secrets that can be
// told from all else, and then looks for them everywhere but where they belong.
func TestSecret_Nowhere(t *testing.T) {
	suite.Release(t, "marked secrets, looked for in all that the system writes")
	marks, fresh := newMarks(t)
	processes := watchProcesses(t, marks)
	messages := hearEverything(t)

	places := map[string]string{placeSaid: liveWith(t, fresh)}
	timeline, err := sys.AwaitTimeline(t.Context(), agentName, "app.failed", "app.removed")
	require.NoError(t, err)
	places["the agent's timeline"] = timeline
	places["RabbitMQ's messages"] = messages()
	collect(t, places)

	for place, text := range places {
		for kind, mark := range marks {
			found := mark.isIn([]byte(text)) && !slices.Contains(mark.places, place)
			assert.False(t, found, "%s is in %s", kind, place)
		}
	}
	for _, found := range processes() {
		t.Error(found)
	}
	// A search that finds nothing anywhere would say the same.
	assert.True(t, marks[ofEnv].isIn([]byte(places[placePods])), "the spec's variable was not found where it belongs")
	assert.True(t, marks[ofSecret].isIn([]byte(objects(t, placeSecrets, namespace))), "the Secret's value was not found where it belongs")
}

// newMarks are the secrets that the system already has, and fresh ones.
func newMarks(t *testing.T) (marks map[string]mark, fresh map[string]string) {
	t.Helper()
	secret := func(name, key string) string {
		s, err := sys.Kube.Clientset.CoreV1().Secrets("pipeops").Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		require.NotEmpty(t, s.Data[key], "Secret %s has no %s", name, key)
		return string(s.Data[key])
	}
	creds, err := credentials.Load(sys.RunnerCredentials(runner))
	require.NoError(t, err)
	token, _, _ := strings.Cut(sys.EnrolmentToken, ".") // what follows is public
	require.NotEmpty(t, token)
	await.Until(t, "the registered agent has removed its enrolment token from its Secret", func() bool {
		given, err := sys.Kube.Clientset.CoreV1().Secrets("pipeops").Get(t.Context(), "pipeops-agent", metav1.GetOptions{})
		require.NoError(t, err)
		return len(given.Data["AGENT_TOKEN"]) == 0
	})
	fresh = map[string]string{}
	for _, kind := range []string{ofSecret, ofLeaving, ofRefused, ofPull, ofEnv} {
		fresh[kind] = "mark-" + uuid.NewString()
	}
	marks = map[string]mark{
		ofToken:   newMark(token[strings.LastIndex(token, "_")+1:], isAgent),
		ofAgent:   newMark(keyMaterial(t, secret("pipeops-agent-identity", "key.pem")), nobody),
		ofRunner:  newMark(keyMaterial(t, creds.Key), nobody),
		ofBroker:  newMark(sys.Broker.Password(broker.UserControlPlane), isControlPlane),
		ofSecret:  newMark(fresh[ofSecret], isTheApp),
		ofLeaving: newMark(fresh[ofLeaving], isTheApp),
		ofRefused: newMark(fresh[ofRefused], nobody),
		ofPull:    newMark(fresh[ofPull], nobody),
		ofEnv:     newMark(fresh[ofEnv], isTheApp, placeApps, placeDeployments, placePods, placeSaid),
	}
	for kind, m := range marks {
		require.GreaterOrEqual(t, len(m.forms[0]), 16, kind)
	}
	return marks, fresh
}

// keyMaterial is a part of a key in PEM that no other key has: its second line
// holds the secret number's end.
func keyMaterial(t *testing.T, text string) string {
	t.Helper()
	lines := strings.Split(text, "\n")
	require.Greater(t, len(lines), 3)
	require.Contains(t, lines[0], "PRIVATE KEY")
	return lines[1][24:]
}

// liveWith lives an App's life: secrets that are set, changed, refused and
// deleted; an App that takes them, is restarted by them, fails, is rolled back
// and deleted. It answers all that was said to the Runner.
func liveWith(t *testing.T, secrets map[string]string) string {
	t.Helper()
	removeApp(t, "canary")
	removeApp(t, "sick")
	file := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	var said strings.Builder
	run := func(stdin string, args ...string) {
		out, err := sys.RunnerWithInput(t.Context(), runner, stdin, args...)
		said.WriteString(out)
		if err != nil {
			var exit *harness.ExitError
			require.ErrorAs(t, err, &exit)
			said.WriteString(exit.Stderr)
		}
	}
	spec := func(name, image, more string) string {
		return file("app.yaml", "apiVersion: pipeops.io/v1alpha1\nkind: App\nmetadata:\n  name: "+name+"\nspec:\n  image: "+image+
			"\n  ports: [{port: 8080}]\n  envFrom: [{secret: canary}]\n  imagePullSecrets: [canary-pull]\n  restartOn: [secrets]\n"+
			"  env: [{name: PLAIN, value: "+secrets[ofEnv]+"}]\n"+more)
	}
	secret := "KEY=" + file("old", secrets[ofLeaving])
	run("", "secret", "set", agentName, "canary", "--from-file", secret)
	run(secrets[ofPull], "secret", "set", agentName, "canary-pull", "--docker-server", "registry.example.com", "--docker-username", "bot", "--docker-password-stdin")
	run("", "deploy", agentName, "-f", spec("canary", image, ""), "--wait=2m")
	run("", "secret", "set", agentName, "canary", "--from-file", "KEY="+file("new", secrets[ofSecret]))
	run("", "status", agentName, "canary", "--wait=2m", "-o", "yaml")
	run("", "secret", "get", agentName, "canary", "-o", "json")
	for _, bad := range [][]string{ // values that are refused, for one reason each
		{"secret", "set", agentName, "canary", "--from-file", "not/a key=" + file("bad", secrets[ofRefused])},
		{"secret", "set", agentName, "canary", "-n", "kube-system", "--from-file", secret},
		{"secret", "set", agentName, "canary-tls", "--type", "tls", "--cert", file("cert", secrets[ofRefused]), "--key", file("key", secrets[ofRefused])},
		{"deploy", agentName, "-f", spec("canary", image, "  nonsense: "+secrets[ofRefused]+"\n"), "--no-wait"},
		{"deploy", agentName, "-f", spec("canary", image, "  replicas: "+secrets[ofRefused]+"\n"), "--no-wait"},
	} {
		before := said.Len()
		run("", bad...)
		assert.Contains(t, said.String()[before:], "fix", "%v was not refused", bad[:2])
	}
	run("", "deploy", agentName, "-f", spec("sick", "registry.invalid/sick:1", ""), "--wait=1m")
	run("", "deploy", agentName, "-f", spec("canary", image, "  replicas: 2\n"), "--wait=2m")
	run("", "rollback", agentName, "canary", "--wait=2m")
	for _, look := range [][]string{{"status"}, {"revisions"}, {"status", "--watch", "--wait=1m"}, {"logs"}} {
		run("", append(look, agentName, "canary")...)
	}
	run("", "delete", agentName, "sick")
	return said.String()
}
