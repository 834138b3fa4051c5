package helm

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"helm.sh/helm/v4/pkg/kube"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/resource"

	"github.com/pipeops/pipeops-vm-agent/internal/denylist"
	"github.com/pipeops/pipeops-vm-agent/internal/duplicates"
	"github.com/pipeops/pipeops-vm-agent/internal/workloadhealth"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// cluster is Helm's client with additional checks. It inspects all that Helm is about to create or
// delete, reports the progress, and keeps the errors that Helm swallows.
type cluster struct {
	*kube.Client
	ctx    context.Context
	key    runnerapi.Key
	limits limits
	// workloads and patience come from Options.
	workloads Workloads
	patience  time.Duration
	// admit asks the policy; nil if nothing is created.
	admit func([]runnerapi.ObjectIntent) error
	say   func(format string, args ...any)
	held  func() error // returns an error if the release may no longer be changed
	waits func()       // is called before it waits for objects
	// stands is the manifest of the current revision: nothing in it is created.
	stands string
	// adopted are hooks without marks that the command takes over.
	adopted map[string]bool
	// removes reports whether only hooks are created.
	removes bool

	mu     sync.Mutex
	failed []error
	left   error // why objects that an uninstall deleted are not gone
}

var (
	_ kube.Interface            = (*cluster)(nil)
	_ kube.InterfaceWaitOptions = (*cluster)(nil)
)

// Build implements kube.Interface. All objects that are created or deleted come from here. Objects
// that are to be deleted, or that stay, are not checked as new ones: Create and Update do that.
func (c *cluster) Build(reader io.Reader, validate bool) (kube.ResourceList, error) {
	text, err := io.ReadAll(reader) // of a release's Secret, or of a chart within its limits
	if err != nil {
		return nil, err
	}
	list, err := c.Client.Build(bytes.NewReader(text), validate)
	if err == nil {
		unduplicatedInfos(list)
	}
	if err != nil || c.removes || c.stands != "" && string(text) == c.stands {
		return list, err
	}
	return list, c.allowed(list)
}

// unduplicatedInfos does to what Helm sends what unduplicated does to what is compared.
func unduplicatedInfos(list kube.ResourceList) {
	var objects []*unstructured.Unstructured
	for _, info := range list {
		if u, ok := info.Object.(*unstructured.Unstructured); ok {
			objects = append(objects, u)
		}
	}
	duplicates.Remove(objects)
}

// allowed refuses objects that may not be created or changed.
func (c *cluster) allowed(list kube.ResourceList) error {
	objects := make([]*object, 0, len(list))
	for _, info := range list {
		o, err := objectOf(info)
		if err != nil {
			return err
		}
		objects = append(objects, o)
	}
	return c.permitted(objects)
}

// permitted asks the limits of all charts, and the policy.
func (c *cluster) permitted(objects []*object) error {
	for _, o := range objects {
		if err := c.limits.check(o); err != nil {
			return err
		}
	}
	if len(objects) == 0 {
		return nil
	}
	return c.admitted(objects)
}

// admitted asks the policy about the objects of a chart.
func (c *cluster) admitted(objects []*object) error {
	if c.admit == nil {
		return nil
	}
	mapper, err := restMapper(c)
	if err != nil {
		return err
	}
	in, err := objectIntents(objects, mapper)
	if err != nil {
		return err
	}
	return c.admit(in)
}

func objectOf(info *resource.Info) (*object, error) {
	u, ok := info.Object.(*unstructured.Unstructured)
	if !ok {
		raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(info.Object)
		if err != nil {
			return nil, err
		}
		u = &unstructured.Unstructured{Object: raw}
	}
	return &object{Unstructured: u, source: "release"}, nil
}

// Create implements kube.Interface.
func (c *cluster) Create(list kube.ResourceList, options ...kube.ClientCreateOption) (*kube.Result, error) {
	if err := cmp.Or(c.held(), c.allowed(list)); err != nil {
		return &kube.Result{}, err
	}
	hooks, err := c.hooks(list)
	if err != nil {
		return &kube.Result{}, err
	}
	for _, u := range hooks {
		mark(u, c.key)
	}
	c.say("making %s", counted(list))
	return c.Client.Create(list, options...)
}

// Update implements kube.Interface.
func (c *cluster) Update(original, target kube.ResourceList, options ...kube.ClientUpdateOption) (*kube.Result, error) {
	if err := cmp.Or(c.held(), c.allowed(target)); err != nil {
		return &kube.Result{}, err
	}
	original, err := c.spare(original, target)
	if err != nil {
		return &kube.Result{}, err
	}
	c.say("changing %s", counted(target))
	return c.Client.Update(original, target, options...)
}

// Delete implements kube.Interface. It keeps failures, which an uninstall does not report. In the
// foreground, it deletes only what makes pods: such an object stays until its pods are gone.
func (c *cluster) Delete(list kube.ResourceList, policy metav1.DeletionPropagation) (*kube.Result, []error) {
	if err := c.held(); err != nil {
		return &kube.Result{}, []error{err}
	}
	if _, err := c.hooks(list); err != nil {
		return &kube.Result{}, []error{err}
	}
	c.say("deleting %s", counted(list))
	all, failed := &kube.Result{}, []error(nil)
	for len(list) > 0 { // in their order
		how, n := propagation(list[0], policy), 1
		for n < len(list) && propagation(list[n], policy) == how {
			n++
		}
		result, errs := c.Client.Delete(list[:n], how)
		if result != nil {
			all.Deleted = append(all.Deleted, result.Deleted...)
		}
		failed, list = append(failed, errs...), list[n:]
	}
	c.mu.Lock()
	c.failed = append(c.failed, failed...)
	c.mu.Unlock()
	return all, failed
}

func propagation(info *resource.Info, policy metav1.DeletionPropagation) metav1.DeletionPropagation {
	if policy != metav1.DeletePropagationForeground {
		return policy
	}
	return workloadhealth.Propagation(denylist.Kind(info.Mapping.GroupVersionKind))
}

// failure returns the first error that Helm may not have reported.
func (c *cluster) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.failed) == 0 {
		return nil
	}
	return c.failed[0]
}

// remains returns why objects that an uninstall deleted are not gone; nil if all are.
func (c *cluster) remains() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.left
}

// GetWaiter implements kube.Interface.
func (c *cluster) GetWaiter(kube.WaitStrategy) (kube.Waiter, error) {
	client, err := c.Factory.KubernetesClientSet()
	return &waiter{c, client}, err
}

// GetWaiterWithOptions implements kube.InterfaceWaitOptions.
func (c *cluster) GetWaiterWithOptions(s kube.WaitStrategy, _ ...kube.WaitOption) (kube.Waiter, error) {
	return c.GetWaiter(s)
}

func counted(list kube.ResourceList) string {
	if len(list) == 1 {
		return named(list[0])
	}
	return fmt.Sprintf("%d objects", len(list))
}

func named(info *resource.Info) string {
	return info.Mapping.GroupVersionKind.Kind + " " + info.Name
}
