// Package kubetest gives the tests of a package a real Kubernetes with the agent's manifest in it,
// and a client with exactly the agent's rights.
package kubetest

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/deployments"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/test/cluster"
)

// AgentNamespace is where the agent's manifest puts the agent.
const AgentNamespace = "pipeops"

// account is the name of the agent's ServiceAccount, and of the roles in its namespace.
const account = "pipeops-agent"

// atOnce is how many parallel tests of a package run at a time, unless -parallel overrides it. They
// wait for a cluster far more than they compute, so the number of processors is not a good measure.
const atOnce = 3

// reused is the environment variable that names a cluster which is up, and stays up, for tests that
// need a whole one (`make cluster-up`). It keeps what earlier tests left in it.
const reused = "PIPEOPS_TEST_CLUSTER"

// Env is a cluster with the agent's manifest applied, and the agent's own
// Deployment stopped: the test is the agent.
type Env struct {
	Cluster *cluster.Cluster
	Admin   *rest.Config  // of the cluster's administrator
	Agent   *rest.Config  // of the agent's ServiceAccount, by impersonation
	Client  client.Client // the administrator's
}

// once brings a cluster up for the first test that asks.
type once struct {
	sync.Once
	env *Env
	err error
}

// Option changes how a package uses clusters.
type Option func()

// OwnClusters gives its own package clusters, because its tests change what is not in a
// namespace (nodes, the CRD, admission policies), share a namespace of the manifest, or run a whole
// agent, which acts in every namespace.
func OwnClusters() { own = true }

var (
	controlPlane, full once
	own                bool
	bringingUp         sync.Mutex // guards release; two that start at once only delay each other
	release            []func(context.Context) error
)

// Main runs a package's tests, and stops the clusters that no other package uses. Call it in
// TestMain.
func Main(m *testing.M, options ...Option) int {
	for _, o := range options {
		o()
	}
	if err := setParallel(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	for _, f := range release {
		if err := f(ctx); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	return code
}

// setParallel sets how many parallel tests run at a time. When fuzzing, the flag means processes.
func setParallel() error {
	flag.Parse()
	const name = "test.parallel"
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == name || f.Name == "test.fuzz" })
	if given {
		return nil
	}
	return flag.Set(name, strconv.Itoa(atOnce))
}

// ControlPlane returns an API server without nodes or controllers.
func ControlPlane(t *testing.T) *Env { return get(t, &controlPlane, "api", true) }

// Full returns a whole cluster, with a node that runs pods.
func Full(t *testing.T) *Env { return get(t, &full, "full", false) }

func get(t *testing.T, o *once, suffix string, controlPlaneOnly bool) *Env {
	t.Helper()
	if testing.Short() {
		t.Skip("brings up a cluster")
	}
	if os.Geteuid() != 0 {
		t.Skip("clusters need root")
	}
	o.Do(func() {
		o.env, o.err = up(cluster.Options{Name: suffix, ControlPlaneOnly: controlPlaneOnly, Out: os.Stderr})
	})
	require.NoError(t, o.err)
	return o.env
}

func up(options cluster.Options) (*Env, error) {
	bringingUp.Lock()
	defer bringingUp.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute) // it may have to be built
	defer cancel()
	c, err := start(ctx, options)
	if err != nil {
		return nil, err
	}
	admin, err := c.RESTConfig()
	if err != nil {
		return nil, err
	}
	admin.QPS, admin.Burst = -1, 0
	agent := rest.CopyConfig(admin)
	agent.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + AgentNamespace + ":" + account,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + AgentNamespace, "system:authenticated"},
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	cl, err := client.New(admin, client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	env := &Env{Cluster: c, Admin: admin, Agent: agent, Client: cl}
	if err := apply(ctx, c); err != nil {
		return nil, err
	}
	return env, env.waitPolicy(ctx)
}

// start brings up a cluster for this package, or finds the one that the environment names, or that
// packages share.
func start(ctx context.Context, options cluster.Options) (*cluster.Cluster, error) {
	if name := os.Getenv(reused); name != "" && !options.ControlPlaneOnly {
		c, err := cluster.Get(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", reused, err)
		}
		return c, nil
	}
	if err := sweep(ctx); err != nil {
		return nil, err
	}
	if !own {
		return share(ctx, options)
	}
	options.Name = fmt.Sprintf("test-%d-%s", os.Getpid(), options.Name)
	c, err := cluster.Up(ctx, options)
	if err != nil {
		return nil, err
	}
	release = append(release, c.Down)
	return c, nil
}

// waitPolicy waits until the API server enforces the manifest's admission
// policy, which it takes up a moment after the policy was made.
func (e *Env) waitPolicy(ctx context.Context) error {
	agent, err := client.New(e.Agent, client.Options{Scheme: e.Client.Scheme()})
	if err != nil {
		return err
	}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"tried":"yes"}}}`))
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 5*time.Minute, true, func(ctx context.Context) (bool, error) {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem}}
		return apierrors.IsForbidden(agent.Patch(ctx, ns, patch, client.DryRunAll)), nil
	})
}

// sweep removes the clusters of test runs that were killed.
func sweep(ctx context.Context) error {
	clusters, err := cluster.List()
	if err != nil {
		return err
	}
	for _, c := range clusters {
		pid, isTest := strings.CutPrefix(c.Name, "test-")
		pid, _, _ = strings.Cut(pid, "-")
		if _, err := os.Stat("/proc/" + pid); !isTest || !errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err := c.Down(ctx); err != nil {
			return err
		}
	}
	return nil
}

// production is a managed namespace for Apps.
//
//go:embed production.yaml
var production string

// apply applies the manifest as a user would, with the agent's own Deployment
// at no replicas.
func apply(ctx context.Context, c *cluster.Cluster) error {
	manifest, err := deployments.Agent()
	if err != nil {
		return err
	}
	manifest = bytes.Replace(manifest, []byte("  replicas: 1\n"), []byte("  replicas: 0\n"), 1)
	_, err = c.KubectlWith(ctx, string(manifest)+"---\n"+production, "apply", "--server-side", "-f", "-")
	return err
}

// Apply applies a manifest as the cluster's administrator, and deletes it when the test ends.
func (e *Env) Apply(t testing.TB, manifest string) {
	t.Helper()
	_, err := e.Cluster.KubectlWith(t.Context(), manifest, "apply", "-f", "-")
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := e.Cluster.KubectlWith(context.Background(), manifest, "delete", "--ignore-not-found", "-f", "-")
		require.NoError(t, err)
	})
}
