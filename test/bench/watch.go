package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// versionVariable is the variable that distinguishes the versions of a spec.
const versionVariable = "VERSION"

// seenTimeout is how long a requested change may take to be seen.
const seenTimeout = 2 * time.Minute

// seen waits for the watched change and returns when it was reported.
type seen func(context.Context) (time.Time, error)

// watchDeployment watches for an App's Deployment with a version of the spec.
func (b *bench) watchDeployment(ctx context.Context, key runnerapi.Key, version string) (seen, error) {
	w, err := b.kube.AppsV1().Deployments(key.Namespace).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + key.Name})
	if err != nil {
		return nil, err
	}
	return await(w, func(o runtime.Object) bool {
		d, ok := o.(*appsv1.Deployment)
		if !ok {
			return false
		}
		for _, v := range d.Spec.Template.Spec.Containers[0].Env {
			if v.Name == versionVariable && v.Value == version {
				return true
			}
		}
		return false
	}), nil
}

// watchReady watches for a ready pod in a namespace without pods.
func (b *bench) watchReady(ctx context.Context, namespace string) (seen, error) {
	pods, err := b.kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	if len(pods.Items) > 0 {
		return nil, fmt.Errorf("namespace %s is not empty", namespace)
	}
	w, err := b.kube.CoreV1().Pods(namespace).Watch(ctx, metav1.ListOptions{ResourceVersion: pods.ResourceVersion})
	if err != nil {
		return nil, err
	}
	return await(w, func(o runtime.Object) bool {
		pod, ok := o.(*corev1.Pod)
		return ok && isReady(pod)
	}), nil
}

func isReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// await records the time when an event fits, also before the result is requested.
func await(w watch.Interface, fits func(runtime.Object) bool) seen {
	at := make(chan time.Time, 1)
	go func() {
		defer w.Stop()
		defer close(at)
		for event := range w.ResultChan() {
			if fits(event.Object) {
				at <- time.Now()
				return
			}
		}
	}()
	return func(ctx context.Context) (time.Time, error) {
		ctx, cancel := context.WithTimeout(ctx, seenTimeout)
		defer cancel()
		select {
		case when, ok := <-at:
			if !ok {
				return when, errors.New("the watch broke off")
			}
			return when, nil
		case <-ctx.Done():
			w.Stop()
			return time.Time{}, fmt.Errorf("not seen: %w", ctx.Err())
		}
	}
}
