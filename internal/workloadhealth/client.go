package workloadhealth

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/kubeclient"
	"github.com/pipeops/pipeops-vm-agent/internal/podport"
)

// requestTimeout bounds each request to the Kubernetes API.
const requestTimeout = 15 * time.Second

func (c *Checker) client() (client.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.api != nil {
		return c.api, nil
	}
	rc := kubeclient.Config(c.config)
	rc.Timeout = requestTimeout
	scheme, mapper := runtime.NewScheme(), meta.NewDefaultRESTMapper(nil)
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, batchv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	for _, kind := range []string{"Pod", "PodList", "Event", "EventList", "Secret", "ConfigMap"} {
		mapper.Add(corev1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	for _, kind := range []string{"Deployment", "StatefulSet", "ReplicaSet", "ControllerRevision"} {
		mapper.Add(appsv1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	mapper.Add(batchv1.SchemeGroupVersion.WithKind("Job"), meta.RESTScopeNamespace)
	api, err := client.New(rc, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("prepare the client that reads workloads: %w", err)
	}
	core, err := corev1client.NewForConfig(rc)
	if err != nil {
		return nil, fmt.Errorf("prepare the client that reads logs: %w", err)
	}
	c.api, c.pods = api, core
	c.ports.reach = podport.NewReach(podport.Forwarder{Config: rc, Core: core.RESTClient()})
	return api, nil
}
