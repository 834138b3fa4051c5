package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/pipeops/pipeops-vm-agent/test/broker"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
)

// lookAround keeps everything up until ctx ends and prints what can be explored.
func (d *demo) lookAround(ctx context.Context) {
	bin := filepath.Join(harness.Root(), "bin")
	own := ""
	if kubectl := d.sys.Kubectl(); kubectl != "kubectl" {
		own = "\n  kubectl() { " + kubectl + ` "$@"; }`
	}
	d.say(`
Everything stays up until Ctrl-C. In another terminal:

  export PATH=%s:$PATH
  export PIPEOPS_RUNNER_CREDENTIALS=%s
  pipeops-runner agents
  pipeops-runner status %s %s -n %s
  pipeops-runner logs %s %s -n %s
  pipeops-controlplane agent get %s --data-dir %s

  export KUBECONFIG=%s%s
  kubectl get apps.pipeops.io,pods -A
  kubectl get --raw /api/v1/namespaces/%s/services/%s:8080/proxy/

  RabbitMQ's page: %s  (user %s, password %s)
  Logs: %s

So that the demo is quick, an App without a probe is healthy after 2 s; elsewhere after 30 s.
The owner of the cluster allows what goes beyond deploying, such as exec, port-forward, apply and
helm: docs/cluster-owner/policy.md.`,
		bin, d.sys.RunnerCredentials(runner),
		agentName, app, namespace, agentName, app, namespace, agentName, d.sys.DataDir(),
		d.sys.Kubeconfig(), own, namespace, app,
		d.sys.Broker.ManagementURL(), broker.UserControlPlane, d.sys.Broker.Password(broker.UserControlPlane), d.sys.Dir)
	<-ctx.Done()
	d.say("\ngoing away ...")
}

// close takes everything down on its own context: the performance's may
// have ended.
func (d *demo) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	var err error
	if d.watch != nil {
		err = d.watch.Close()
	}
	return errors.Join(err, d.sys.Close(ctx))
}

// saveLogs keeps what is needed to find out why the demo failed.
func (d *demo) saveLogs() error {
	dir, err := os.MkdirTemp("", "pipeops-demo-failed-")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := d.sys.SaveLogs(ctx, dir); err != nil {
		return err
	}
	if os.Remove(dir) == nil { // which it does when nothing is in it
		return nil
	}
	d.say("logs of what failed: %s", dir)
	return nil
}
