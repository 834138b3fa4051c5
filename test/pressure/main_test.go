// Package pressure has the agent run with the memory that it is shipped with, and do what takes the
// most of it: large Apps, large releases, sets and sources, popular charts one after another. The
// kernel must not kill anything, and the agent must keep serving light commands.
package pressure

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/inputs"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

const (
	agentName = "shop"
	runner    = "pressure"
	// policy lets the Runner do what the tests do.
	policy = "rules: [{name: all, commands: ['*', apply-manifests, delete-set, put-release, rollback-release, delete-release, put-source], kinds: ['*', ClusterRole.rbac.authorization.k8s.io, ClusterRoleBinding.rbac.authorization.k8s.io]}]"
)

// sys is the system of all tests.
var sys *harness.System

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() || !suite.IsRelease() { // the tests skip
		os.Exit(m.Run())
	}
	os.Exit(harness.RunTests(m, harness.Options{Name: "pressure", Out: os.Stdout, AgentLogLevel: "info"}, start))
}

func start(ctx context.Context, s *harness.System) (err error) {
	sys = s
	if sys.Binaries, err = harness.Build(ctx); err != nil {
		return err
	}
	if err := inputs.Depend("deployments"); err != nil {
		return err
	}
	if err := sys.StartKubernetes(ctx); err != nil {
		return err
	}
	if err := sys.StartControlPlane(ctx); err != nil {
		return err
	}
	if _, err := sys.CreateRunner(ctx, runner); err != nil {
		return err
	}
	token, err := sys.CreateToken(ctx)
	if err != nil {
		return err
	}
	if err := sys.DeployAgent(ctx, agentName, token); err != nil {
		return err
	}
	if _, err := sys.Cluster.Kubectl(ctx, "apply", "--server-side", "-f", filepath.Join(harness.Root(), "deployments", "sources.yaml")); err != nil {
		return err
	}
	// The charts bring ClusterRoles, definitions and webhooks: the owner lets the agent install
	// any.
	if _, err := sys.Cluster.Kubectl(ctx, "create", "clusterrolebinding", "pressure", "--clusterrole=cluster-admin", "--serviceaccount=pipeops:pipeops-agent"); err != nil {
		return err
	}
	return allow(ctx)
}

// allow has the policy, and waits until it holds.
func allow(ctx context.Context) error {
	_, err := sys.Kube.Clientset.CoreV1().ConfigMaps("pipeops").Create(ctx,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "pipeops-policy"}, Data: map[string]string{"policy.yaml": policy}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	return harness.Eventually(ctx, "the policy is active", func(ctx context.Context) error {
		out, err := sys.Runner(ctx, runner, "cluster", agentName, "-o", "json")
		if err == nil && !strings.Contains(out, `"state": "active"`) {
			err = fmt.Errorf("cluster: %s", out)
		}
		return err
	})
}
