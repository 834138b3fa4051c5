package selfupdate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/release"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/planetest"
	"github.com/pipeops/pipeops-vm-agent/test/programs"
	"github.com/pipeops/pipeops-vm-agent/test/releasetest"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m, kubetest.OwnClusters)) }

const patience = 5 * time.Minute

// world is a control plane in this process, a site with releases, and an agent that is
// a service.
type world struct {
	t       *testing.T
	plane   *planetest.Plane
	site    string // folder of what is published
	siteURL string
	state   string // the agent's state directory
	env     []string
	agent   *exec.Cmd
	done    chan struct{}
	since   time.Time // when it was started last
	log     string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	env := kubetest.ControlPlane(t)
	w := &world{t: t, site: t.TempDir()}
	// A socket's path has to be short, which those of tests are not.
	var err error
	w.state, err = os.MkdirTemp("", "pipeops-")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(w.state)) })
	w.plane = planetest.Start(t)
	var roots string
	w.siteURL, roots = releasetest.Site(t, w.site)
	w.env = []string{
		"PATH=" + os.Getenv("PATH"), "NO_PROXY=*", "KUBECONFIG=" + asAgent(t, env.Cluster.Kubeconfig()), "AGENT_TOKEN=" + w.plane.Token(t, administration.TokenOptions{TTL: time.Hour}),
		"PIPEOPS_CONTROL_PLANE_URL=" + w.plane.URL(), "CLUSTER_NAME=shop", "PIPEOPS_STATE_DIR=" + w.state, "PIPEOPS_HEALTH_ADDRESS=127.0.0.1:0",
		"PIPEOPS_CA_FILE=" + roots, "PIPEOPS_SELF_UPDATE=true", "PIPEOPS_UPDATE_KEYS=" + releasetest.PublicKey, "PIPEOPS_UPDATE_DEADLINE=10s",
	}
	w.log = filepath.Join(t.TempDir(), "agent.log")
	t.Cleanup(func() {
		w.kill()
		if t.Failed() {
			text, _ := os.ReadFile(w.log)
			t.Logf("the agent's log:\n%s", text)
		}
	})
	return w
}

// asAgent is a kubeconfig with the rights of the agent's ServiceAccount.
func asAgent(t *testing.T, admin string) string {
	t.Helper()
	cfg, err := clientcmd.LoadFromFile(admin)
	require.NoError(t, err)
	for _, user := range cfg.AuthInfos {
		user.Impersonate = "system:serviceaccount:" + kubetest.AgentNamespace + ":pipeops-agent"
		user.ImpersonateGroups = []string{"system:serviceaccounts", "system:serviceaccounts:" + kubetest.AgentNamespace, "system:authenticated"}
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*cfg, file))
	return file
}

// build compiles a program.
func build(t *testing.T, program programs.Program) string {
	t.Helper()
	program.Name = "pipeops-agent"
	file, err := program.Build(t.Context())
	require.NoError(t, err)
	return file
}

// publish puts a program on the site as a release, and offers that.
func (w *world) publish(version, program string, change ...func(*release.File)) {
	w.t.Helper()
	opts := administration.ReleaseOptions{Trust: releasetest.Trust(w.t), URL: w.siteURL + "/" + version}
	opts.Manifest, opts.Signature = releasetest.Publish(w.t, w.site, version, program, change...)
	_, err := w.plane.Releases.Offer(w.t.Context(), opts)
	require.NoError(w.t, err)
}

// start is what the service manager does: it starts the installed program.
func (w *world) start(installed string) {
	w.t.Helper()
	log, err := os.OpenFile(w.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(w.t, err)
	w.agent = exec.Command(installed, "run")
	w.agent.Env, w.agent.Stdout, w.agent.Stderr = w.env, log, log
	w.agent.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	w.since = time.Now()
	require.NoError(w.t, w.agent.Start())
	cmd, done := w.agent, make(chan struct{})
	w.done = done
	go func() {
		defer close(done)
		_ = cmd.Wait()
		_ = log.Close()
	}()
}

func (w *world) kill() {
	if w.agent != nil {
		_ = w.agent.Process.Kill()
		await.Closed(w.t, w.done, "the end of the killed agent")
	}
}

// await waits until the agent is online as a version, with its update in a state, and
// answers what it says of that.
func (w *world) await(version, state, to string) announce.AgentUpdate {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	var found announce.AgentUpdate
	require.NoError(w.t, harness.Eventually(ctx, fmt.Sprintf("%s is online, update %s %s", version, state, to), func(ctx context.Context) error {
		select {
		case <-w.done:
			cancel()
			return fmt.Errorf("the agent's process ended")
		default:
		}
		agents, err := w.plane.Agents.List(ctx)
		if err != nil {
			return err
		}
		err = errors.New("no agent is registered")
		for _, a := range agents {
			if a.State == announce.StateOnline && a.LastSeen.After(w.since) && a.AgentVersion == version && a.Update != nil && a.Update.State == state && a.Update.To == to {
				found = *a.Update
				return nil
			}
			err = fmt.Errorf("%s, %s, %+v", a.State, a.AgentVersion, a.Update)
		}
		return err
	}))
	return found
}

// neverOffline asserts that the agent was online all the time since it was first.
func (w *world) neverOffline() {
	w.t.Helper()
	detail, err := w.plane.Agents.Get(w.t.Context(), "shop", 100)
	require.NoError(w.t, err)
	for _, e := range detail.Events {
		assert.NotEqual(w.t, announce.AgentOffline, e.Type)
	}
}

// step is a subtest, which the methods then speak for.
func (w *world) step(name string, f func(t *testing.T)) {
	whole := w.t
	whole.Run(name, func(t *testing.T) {
		w.t = t
		defer func() { w.t = whole }()
		f(t)
	})
}

// TestSelfUpdate_Service has an agent of a machine be offered one release after the other.
func TestSelfUpdate_Service(t *testing.T) {
	suite.Release(t, "an agent that is a service of its machine updates itself")
	t.Parallel()
	w := newWorld(t)
	one := build(t, programs.Agent.At("v1.0.0"))
	two := build(t, programs.Agent.At("v1.1.0"))
	w.start(one)
	w.await("v1.0.0", "idle", "")

	w.step("one that never registers is ended in time", func(t *testing.T) {
		w.publish("v1.0.1", build(t, programs.Program{Package: "./test/apps/badagent", LDFlags: "-X main.mode=never"}))
		got := w.await("v1.0.0", "failed", "v1.0.1")
		assert.Equal(t, "it was not ready within 10s: tunnel: connecting: no route to nowhere", got.Reason)
		assert.Equal(t, "v1.0.0", got.From)
	})
	w.step("one that crashes is not tried again", func(t *testing.T) {
		w.publish("v1.0.2", build(t, programs.Program{Package: "./test/apps/badagent"}))
		got := w.await("v1.0.0", "failed", "v1.0.2")
		assert.Equal(t, "it ended: exit status 3: the new version does not understand its old state", got.Reason)
		text, err := os.ReadFile(w.log)
		require.NoError(t, err)
		assert.Equal(t, 1, strings.Count(string(text), "\nthe new version does not understand"))
	})
	w.step("one that is larger than it was signed for is refused", func(t *testing.T) {
		w.publish("v1.0.4", two, func(f *release.File) { f.Size = 1000 })
		reason := w.await("v1.0.0", "refused", "v1.0.4").Reason
		assert.Equal(t, "digest: what was downloaded is not the pipeops-agent_v1.0.4 that was signed (the agent's log says more)", reason)
		said, err := os.ReadFile(w.log)
		require.NoError(t, err)
		assert.Contains(t, string(said), "larger than the 1000 bytes")
	})
	w.neverOffline()
	w.step("a good one takes over, in the same process", func(t *testing.T) {
		w.publish("v1.1.0", two)
		assert.Equal(t, announce.AgentUpdate{State: "done", From: "v1.0.0", To: "v1.1.0"}, w.await("v1.1.0", "done", "v1.1.0"))
	})
	w.step("and is what is started from then on", func(t *testing.T) {
		w.kill()
		w.start(one)
		w.await("v1.1.0", "done", "v1.1.0")
	})
}
