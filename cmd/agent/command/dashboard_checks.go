package command

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/pipeops/pipeops-vm-agent/agent/config"
	"github.com/pipeops/pipeops-vm-agent/agent/doctor"
	"github.com/pipeops/pipeops-vm-agent/agent/launch"
	"github.com/pipeops/pipeops-vm-agent/agent/update"
	"github.com/pipeops/pipeops-vm-agent/internal/app/diagnose"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/components"
	"github.com/pipeops/pipeops-vm-agent/internal/web/dashboard"
	"github.com/pipeops/pipeops-vm-agent/internal/workloadhealth"
)

// The bounds of what is read of a report, and of why there is none, in bytes.
const (
	maxDoctorReport = 4 << 20
	maxDoctorError  = 64 << 10
)

// dashboardChecks are what other commands of this program find out, for the dashboard's pages.
type dashboardChecks struct {
	*dashboardFlags
	kubernetes *rest.Config
}

func (c *dashboardChecks) components(ctx context.Context) ([]components.Status, error) {
	place := componentsPlace{kubeconfig: c.kubeconfig}
	i, err := place.installer(io.Discard, components.Settings{})
	if err != nil {
		return nil, err
	}
	cluster, err := components.Look(ctx, i.Client)
	if err != nil {
		return nil, err
	}
	states, err := components.States(ctx, i.Client, workloadhealth.New(i.Config, diagnose.DefaultStabilization))
	return components.Statuses(cluster, states), err
}

func (c *dashboardChecks) updates(ctx context.Context) (update.Record, error) {
	if c.stateDir != "" {
		return update.Service{Dir: launch.In(c.stateDir), Version: version}.Recall(ctx)
	}
	k, err := c.client()
	if err != nil {
		return update.Record{}, err
	}
	return update.Pods{Cluster: k}.Recall(ctx)
}

// readiness asks the health port of the agent on this machine.
func (c *dashboardChecks) readiness(ctx context.Context) (dashboard.Readiness, error) {
	_, port, err := net.SplitHostPort(cmp.Or(os.Getenv("PIPEOPS_HEALTH_ADDRESS"), ":8080"))
	if err != nil {
		return dashboard.Readiness{}, fmt.Errorf("PIPEOPS_HEALTH_ADDRESS: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost:"+port+"/readyz", nil) //nolint:gosec // the agent's own port
	if err != nil {
		return dashboard.Readiness{}, err
	}
	var found dashboard.Readiness
	err = cli.AwaitReady("the agent", req, 0, nil, func(resp *http.Response) error {
		body, err := io.ReadAll(resp.Body)
		if err == nil {
			found, err = dashboard.DecodeReadiness(body)
		}
		return err
	})
	return found, err
}

// doctor runs the checks where the agent runs: in its pod, or here.
func (c *dashboardChecks) doctor(ctx context.Context) (doctor.Report, error) {
	if c.stateDir != "" {
		return doctor.Examine(ctx, c.doctorOptions()), nil
	}
	api, err := kubernetes.NewForConfig(c.kubernetes)
	if err != nil {
		return doctor.Report{}, err
	}
	pod, err := c.agentPod(ctx, api)
	if err != nil {
		return doctor.Report{}, err
	}
	return c.doctorIn(ctx, api, pod)
}

// doctorOptions are those of the command doctor with the settings that this process has.
func (c *dashboardChecks) doctorOptions() doctor.Options {
	flags := pflag.NewFlagSet("doctor", pflag.ContinueOnError)
	config.AddFlags(flags)
	opts := doctor.Options{Version: version, ReleaseKeys: releaseKeys, Kubernetes: c.kubernetes}
	opts.Config, opts.ConfigErr = config.Load(flags, os.Getenv)
	return opts
}

func (c *dashboardChecks) bundle(ctx context.Context, file string, report doctor.Report) error {
	return doctor.WriteBundle(ctx, file, c.doctorOptions(), report)
}

// agentPod returns a pod of the agent that runs.
func (c *dashboardChecks) agentPod(ctx context.Context, api kubernetes.Interface) (string, error) {
	pods, err := api.CoreV1().Pods(c.namespace).List(ctx, metav1.ListOptions{LabelSelector: doctor.AgentSelector})
	if err != nil {
		return "", err
	}
	for _, pod := range pods.Items {
		if pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
			return pod.Name, nil
		}
	}
	return "", errors.New("no pod of the agent runs (fix: kubectl -n " + c.namespace + " describe deployments -l " + doctor.AgentSelector + ")")
}

// doctorIn runs the command doctor in a pod. It fails where a check does, and prints its report
// anyway.
func (c *dashboardChecks) doctorIn(ctx context.Context, api kubernetes.Interface, pod string) (report doctor.Report, err error) {
	req := api.CoreV1().RESTClient().Post().Resource("pods").Namespace(c.namespace).Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Command: []string{"/pipeops-agent", "doctor", "-o", "json"}, Stdout: true, Stderr: true}, scheme.ParameterCodec)
	executor, err := remotecommand.NewSPDYExecutor(c.kubernetes, http.MethodPost, req.URL())
	if err != nil {
		return report, err
	}
	var out, errOut bytes.Buffer
	ran := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &limited{&out, maxDoctorReport}, Stderr: &limited{&errOut, maxDoctorError}})
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		return report, errors.Join(ran, errors.New(cmp.Or(errOut.String(), err.Error())))
	}
	return report, nil
}

// limited keeps the beginning of what is written.
type limited struct {
	to   *bytes.Buffer
	left int
}

// Write implements io.Writer.
func (l *limited) Write(p []byte) (int, error) {
	n := min(len(p), l.left)
	l.left -= n
	l.to.Write(p[:n])
	return len(p), nil
}
