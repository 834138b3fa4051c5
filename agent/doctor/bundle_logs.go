package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// AgentSelector selects the agent's pods, under any name of its Deployment.
const AgentSelector = "app.kubernetes.io/name=pipeops-agent"

const (
	serviceName = "pipeops-agent"
	openRCLog   = "/var/log/pipeops-agent.log" // as in deployments/openrc
	logLines    = 5000
)

type addPart func(name string, text []byte, err error)

// podParts adds the state and the logs of the agent's pods. The agent itself may not read them, so
// the operator's kubeconfig is needed.
func (b *bundle) podParts(ctx context.Context, add addPart) {
	if b.Kubernetes == nil {
		return
	}
	core, err := corev1client.NewForConfig(b.cluster.restConfig())
	if err != nil {
		add("kubernetes/pods.json", nil, err)
		return
	}
	pods, err := core.Pods(b.Config.Namespace).List(ctx, metav1.ListOptions{LabelSelector: AgentSelector})
	if err != nil {
		add("kubernetes/pods.json", nil, err)
		return
	}
	text, err := json.MarshalIndent(states(pods.Items), "", "  ")
	add("kubernetes/pods.json", text, err)
	for _, pod := range pods.Items {
		for _, previous := range []bool{false, true} {
			name := "logs/" + pod.Name
			if previous {
				if restarts(pod) == 0 {
					continue
				}
				name += "-previous"
			}
			options := &corev1.PodLogOptions{TailLines: new(int64(logLines)), LimitBytes: new(int64(maxPart)), Previous: previous}
			text, err := core.Pods(pod.Namespace).GetLogs(pod.Name, options).DoRaw(ctx)
			add(name+".log", text, err)
		}
	}
}

// podState leaves out a pod's spec: its environment may hold secrets.
type podState struct {
	Name   string           `json:"name"`
	Node   string           `json:"node"`
	Images []string         `json:"images"`
	Status corev1.PodStatus `json:"status"`
}

func states(pods []corev1.Pod) []podState {
	list := make([]podState, 0, len(pods))
	for _, pod := range pods {
		s := podState{Name: pod.Name, Node: pod.Spec.NodeName, Status: pod.Status}
		for _, c := range pod.Spec.Containers {
			s.Images = append(s.Images, c.Image)
		}
		list = append(list, s)
	}
	return list
}

func restarts(pod corev1.Pod) (n int32) {
	for _, c := range pod.Status.ContainerStatuses {
		n += c.RestartCount
	}
	return n
}

// serviceParts adds the log of the agent as a service of this machine.
func serviceParts(ctx context.Context, add addPart) {
	if journalctl, err := exec.LookPath("journalctl"); err == nil {
		cmd := exec.CommandContext(ctx, journalctl, "--no-pager", "--quiet", "--unit", serviceName, "--lines", "5000")
		text, err := cmd.Output()
		if err != nil || len(text) > 0 {
			add("logs/journal.log", text, err)
		}
	}
	text, err := endOf(openRCLog)
	if !errors.Is(err, fs.ErrNotExist) {
		add("logs/openrc.log", text, err)
	}
}

// endOf reads a little more of a file's end than a bundle takes.
func endOf(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-2*maxPart), 2*maxPart))
}
