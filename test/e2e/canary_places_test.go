package e2e

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/rabbitmq"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/broker"
)

// lookInterval is how often the processes of this machine, the pods' among them,
// are looked at.
const lookInterval = 100 * time.Millisecond

// mark is a secret that is looked for.
type mark struct {
	forms [][]byte
	// may says whether the environment of a process with these arguments may hold it.
	may func(args string) bool
	// places may hold it.
	places []string
}

// newMark writes a secret as it may be written: as it is, in hexadecimal, and in
// base64, where what stands before it decides on one of three forms.
func newMark(text string, may func(string) bool, places ...string) mark {
	m := mark{may: may, places: places, forms: [][]byte{[]byte(text), []byte(hex.EncodeToString([]byte(text)))}}
	for before := range 3 {
		encoded := base64.RawStdEncoding.EncodeToString([]byte("xx"[:before] + text))
		// The first characters have bits of what stands before, the last of what follows.
		m.forms = append(m.forms, []byte(encoded[(before*8+5)/6:len(encoded)-1]))
	}
	return m
}

func nobody(string) bool              { return false }
func isTheApp(args string) bool       { return strings.HasPrefix(args, "/hello") }
func isAgent(args string) bool        { return strings.HasPrefix(args, "/pipeops-agent ") }
func isControlPlane(args string) bool { return strings.Contains(args, "pipeops-controlplane serve ") }

func (m mark) isIn(text []byte) bool {
	return slices.ContainsFunc(m.forms, func(form []byte) bool { return bytes.Contains(text, form) })
}

// Places where an App's spec is by its nature.
const (
	placeSaid        = "what the Runner's command line said"
	placeApps        = "apps.v1alpha1.pipeops.io"
	placeDeployments = "deployments.v1.apps"
	placePods        = "pods.v1."
	placeSecrets     = "secrets.v1."
)

// collect reads what can be read at the end.
func collect(t *testing.T, places map[string]string) {
	t.Helper()
	ctx := t.Context()
	var err error
	places["the audit log"], err = sys.Runner(ctx, runner, "audit", agentName, "--limit", "200", "-o", "json")
	require.NoError(t, err)
	places["the audit log at the control plane"], err = sys.ControlPlane(ctx, "agent", "audit", agentName, "-o", "json")
	require.NoError(t, err)
	places["the control plane's database"] = files(t, sys.DataDir(), func(name string) bool { return strings.HasPrefix(name, "controlplane.db") })
	places["RabbitMQ's files"] = files(t, filepath.Dir(sys.Broker.LogDir()), func(string) bool { return true })
	for _, resource := range []string{placeApps, placeDeployments, placePods, "events.v1."} {
		places[resource] = objects(t, resource, v1.NamespaceAll)
	}
	places["what the agent keeps"] = objects(t, "controllerrevisions.v1.apps", "pipeops")
	for place, text := range places {
		require.Contains(t, text, "canary", "%s tells nothing of what was done", place)
	}
	control, err := os.ReadFile(sys.ControlPlaneLog())
	require.NoError(t, err)
	require.NotEmpty(t, control)
	places["the control plane's log"] = string(control)
	places["the agent's log"] = sys.AgentLog(ctx, 100_000)
	require.Contains(t, places["the agent's log"], "runner API call", "the log tells nothing of what was done")
	places["config maps"] = objects(t, "configmaps.v1.", v1.NamespaceAll)
}

// objects are all objects of a resource in a namespace.
func objects(t *testing.T, resource, namespace string) string {
	t.Helper()
	gvr, _ := schema.ParseResourceArg(resource)
	require.NotNil(t, gvr, resource)
	cl, err := dynamic.NewForConfig(sys.Kube.Config)
	require.NoError(t, err)
	list, err := cl.Resource(*gvr).Namespace(namespace).List(t.Context(), v1.ListOptions{})
	require.NoError(t, err)
	text, err := json.Marshal(list)
	require.NoError(t, err)
	return string(text)
}

// files are the contents of the files below a folder whose names fit.
func files(t *testing.T, dir string, fits func(string) bool) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || !fits(entry.Name()) {
			return goneMeanwhile(err)
		}
		text, err := os.ReadFile(path)
		all.Write(text)
		return goneMeanwhile(err)
	})
	require.NoError(t, err)
	require.NotZero(t, all.Len(), "%s has no such file", dir)
	return all.String()
}

// goneMeanwhile forgives files that come and go.
func goneMeanwhile(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// hearEverything listens to all announcements; what it answers tells what was
// heard, as it was sent.
func hearEverything(t *testing.T) func() string {
	t.Helper()
	ch := broker.Channel(t, sys.Broker, broker.UserControlPlane)
	queue, err := ch.QueueDeclare("pipeops.canary", false, true, true, false, nil)
	require.NoError(t, err)
	require.NoError(t, ch.QueueBind(queue.Name, "#", rabbitmq.Exchange, false, nil))
	deliveries, err := ch.Consume(queue.Name, "", true, true, false, false, nil)
	require.NoError(t, err)
	var heard strings.Builder
	done := make(chan struct{})
	go func() {
		defer close(done)
		for d := range deliveries {
			fmt.Fprintln(&heard, d.RoutingKey, d.Headers, string(d.Body))
		}
	}()
	return func() string {
		assert.NoError(t, ch.Close())
		await.Closed(t, done, "the end of what was heard")
		return heard.String()
	}
}

// watchProcesses looks at the arguments and the environment of every process,
// again and again; what it answers ends that and tells what was found.
func watchProcesses(t *testing.T, marks map[string]mark) func() []string {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	found, held := map[string]bool{}, map[string]bool{}
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(lookInterval)
		defer tick.Stop()
		for ctx.Err() == nil {
			lookAtProcesses(marks, found, held)
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	return func() []string {
		stop()
		wg.Wait()
		// One that looks past processes would find nothing, too.
		assert.True(t, held[ofEnv], "the App's own environment was not looked at")
		return slices.Sorted(maps.Keys(found))
	}
}

// lookAtProcesses notes secrets that it finds, and in held those of a process that
// may have them. A process has its environment before its arguments while it starts: what shows
// no arguments yet is looked at the next time.
func lookAtProcesses(marks map[string]mark, found, held map[string]bool) {
	folders, _ := filepath.Glob("/proc/[0-9]*")
	for _, folder := range folders {
		environ, _ := os.ReadFile(filepath.Join(folder, "environ"))
		raw, _ := os.ReadFile(filepath.Join(folder, "cmdline"))
		if len(raw) == 0 {
			continue
		}
		args := string(bytes.ReplaceAll(raw, []byte{0}, []byte{' '}))
		for kind, m := range marks {
			if m.isIn(raw) {
				found[fmt.Sprintf("%s is in the arguments of %.60s", kind, args)] = true
			}
			switch {
			case !m.isIn(environ):
			case m.may(args):
				held[kind] = true
			default:
				found[fmt.Sprintf("%s is in the environment of %.60s", kind, args)] = true
			}
		}
	}
}
