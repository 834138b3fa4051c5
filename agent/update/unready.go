package update

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/app/diagnose"
	"github.com/pipeops/pipeops-vm-agent/internal/kube"
)

const (
	askTimeout = 2 * time.Second
	maxAnswer  = 64 << 10
)

// trouble returns why the pods of the newest spec are not ready: a running pod reports it itself,
// and otherwise Kubernetes' signals show it.
func (p Pods) trouble(ctx context.Context, own kube.Own) string {
	pods, err := p.Cluster.PodsOf(ctx, own, own.Image)
	if err != nil {
		return "its pods could not be read: " + err.Error()
	}
	for _, pod := range pods {
		if said := ask(ctx, pod); said != "" {
			return "pod " + pod.Name + " says " + said
		}
	}
	found := diagnose.Find(diagnose.Evidence{Deployment: own.Deployment, Pods: pods, Now: p.Now()})
	if d := found.Diagnosis; d != nil {
		return strings.Join(append([]string{d.Message}, d.LastLines...), ": ")
	}
	if len(pods) == 0 {
		return "Kubernetes made no pod for it"
	}
	return fmt.Sprintf("pod %s is %s without a reason", pods[0].Name, strings.ToLower(string(pods[0].Status.Phase)))
}

// ask asks a pod that runs what it waits for, as the kubelet does.
func ask(ctx context.Context, pod *corev1.Pod) string {
	address := healthAddress(pod)
	if address == "" {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz", nil)
	if err != nil {
		return ""
	}
	client := &http.Client{ // and no proxy
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	if err != nil {
		return ""
	}
	defer func() { _ = resp.Body.Close() }()
	var answer struct{ Detail string }
	if json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&answer) != nil {
		return ""
	}
	return answer.Detail
}

// healthAddress returns the address of the health port of a pod whose agent runs.
func healthAddress(pod *corev1.Pod) string {
	for _, s := range pod.Status.ContainerStatuses {
		if s.State.Running == nil || pod.Status.PodIP == "" {
			return ""
		}
	}
	for _, c := range pod.Spec.Containers {
		for _, port := range c.Ports {
			if port.Name == "health" {
				return net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(int(port.ContainerPort)))
			}
		}
	}
	return ""
}
