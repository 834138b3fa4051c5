package attackers

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// maxGrowth is how much more memory than before the agent and the control plane may take: less than
// the smallest thing that would fill it, of 100 MiB. On a busy machine garbage is collected late.
const maxGrowth = 64 << 20

// leastAttempts is what each attacker tries at least.
const leastAttempts = 30

// judgeSpace enforces the baseline of pod security, for judge.
const judgeSpace = "judge"

// scene is what is compared before an attacker came and after.
type scene struct {
	ear
	t      *testing.T
	before inventory
	agent  life
	plane  life

	pods map[types.UID]*corev1.Pod // all that there were
	stop func()
}

// life is a process, and the most memory that it had since the scene was opened.
type life struct {
	pid  int
	peak int64
}

// open notes how things are. An honest run of each kind of call comes before: what the first use of
// a part of the agent takes, and keeps, is not an attacker's doing. So growth is the peak under
// attack above the peak of honest use. Both peaks begin at open: what an attacker before this one
// took would else hide as much of this one's. Honest use is small, or of a size that the agent
// takes of any Runner: the Git repository has half of what one may have.
func open(t *testing.T, warmUp func()) *scene {
	t.Helper()
	suite.Release(t, "attackers of the whole system")
	makeJudge(t)
	require.NoError(t, sys.ForgetPeakMemory())
	warmUp()
	s := &scene{t: t, pods: map[types.UID]*corev1.Pod{}, before: stock(t)}
	s.agent, s.plane = agentLife(t), planeLife(t)
	s.watchPods()
	return s
}

func makeJudge(t *testing.T) {
	t.Helper()
	err := sys.Kube.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: judgeSpace, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "baseline"},
	}})
	if !apierrors.IsAlreadyExists(err) {
		require.NoError(t, err)
		require.NoError(t, harness.Eventually(t.Context(), "the judge has an account", func(ctx context.Context) error {
			_, err := sys.Kube.Clientset.CoreV1().ServiceAccounts(judgeSpace).Get(ctx, "default", metav1.GetOptions{})
			return err
		}))
	}
	privileged := true
	err = judge(t.Context(), &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "c", Image: "x", SecurityContext: &corev1.SecurityContext{Privileged: &privileged},
	}}}})
	require.ErrorContains(t, err, "baseline", "the judge would see a privileged pod")
}

// watchPods keeps every pod that there is, however short it lives.
func (s *scene) watchPods() {
	ctx, cancel := context.WithCancel(context.Background())
	list, err := sys.Kube.Clientset.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	require.NoError(s.t, err)
	for i := range list.Items {
		s.pods[list.Items[i].UID] = nil // was there before
	}
	w, err := sys.Kube.Clientset.CoreV1().Pods("").Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	require.NoError(s.t, err)
	var joined sync.WaitGroup
	joined.Go(func() {
		for event := range w.ResultChan() {
			pod, ok := event.Object.(*corev1.Pod)
			if !ok || event.Type == watch.Deleted {
				continue
			}
			if was, known := s.pods[pod.UID]; !known || was != nil {
				s.pods[pod.UID] = pod
			}
		}
	})
	s.stop = sync.OnceFunc(func() {
		w.Stop()
		cancel()
		joined.Wait()
	})
	s.t.Cleanup(s.stop)
}

// close compares. Nothing that an attacker received may hold a Secret.
func (s *scene) close() {
	s.t.Helper()
	agent, plane := agentLife(s.t), planeLife(s.t)
	s.t.Logf("peak memory: agent %d KiB, before %d KiB; control plane %d KiB, before %d KiB; %d bytes received",
		agent.peak>>10, s.agent.peak>>10, plane.peak>>10, s.plane.peak>>10, s.amount)
	assert.Equal(s.t, s.agent.pid, agent.pid, "the agent did not restart")
	assert.Equal(s.t, s.plane.pid, plane.pid, "the control plane did not restart")
	assert.LessOrEqual(s.t, agent.peak-s.agent.peak, int64(maxGrowth), "what the agent grew by")
	assert.LessOrEqual(s.t, plane.peak-s.plane.peak, int64(maxGrowth), "what the control plane grew by")
	s.hearLogs()
	assert.Empty(s.t, s.heard, "values of Secrets that came out")
	s.compare()
	s.stop()
	judged := 0
	for _, pod := range s.pods {
		if pod == nil {
			continue
		}
		judged++
		assert.NoError(s.t, judge(s.t.Context(), pod), "pod %s/%s", pod.Namespace, pod.Name)
	}
	s.t.Logf("%d pods were made", judged)
}

func (s *scene) compare() {
	s.t.Helper()
	assert.Empty(s.t, stock(s.t).since(s.before, managedNamespaces(s.t)), "objects outside of the Runner's namespaces")
}

// hearLogs searches the logs of agent and control plane, and the events of the cluster: others than
// an attacker read them.
func (s *scene) hearLogs() {
	s.t.Helper()
	s.hear("the agent's log", []byte(sys.AgentLog(s.t.Context(), 100_000)))
	text, err := os.ReadFile(sys.ControlPlaneLog())
	require.NoError(s.t, err)
	s.hear("the control plane's log", text)
	events, err := sys.Kube.Clientset.CoreV1().RESTClient().Get().Resource("events").DoRaw(s.t.Context())
	require.NoError(s.t, err)
	s.hear("the cluster's events", events)
}

func agentLife(t *testing.T) life {
	t.Helper()
	pid, err := sys.AgentPID()
	require.NoError(t, err)
	peak, err := sys.AgentPeakMemory(t.Context())
	require.NoError(t, err)
	return life{pid, peak}
}

func planeLife(t *testing.T) life {
	t.Helper()
	peak, err := sys.ControlPlanePeakMemory()
	require.NoError(t, err)
	return life{sys.ControlPlanePID(), peak}
}

// setPolicy is what the cluster's owner does; it goes with the test.
func setPolicy(t *testing.T, policy string) {
	t.Helper()
	suite.Release(t, "attackers of the whole system")
	maps := sys.Kube.Clientset.CoreV1().ConfigMaps(agentSpace)
	_, err := maps.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "pipeops-policy"}, Data: map[string]string{"policy.yaml": policy},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, sys.AwaitPolicy(t.Context(), honest, agentName, "active"))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		assert.NoError(t, maps.Delete(ctx, "pipeops-policy", metav1.DeleteOptions{}))
		assert.NoError(t, sys.AwaitPolicy(ctx, honest, agentName, "default"))
	})
}
