package diagnose

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func scaler(since time.Duration, kind autoscalingv2.HorizontalPodAutoscalerConditionType, reason, message string) *autoscalingv2.HorizontalPodAutoscaler {
	return &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Status: autoscalingv2.HorizontalPodAutoscalerStatus{Conditions: []autoscalingv2.HorizontalPodAutoscalerCondition{{
			Type: kind, Status: corev1.ConditionFalse, Reason: reason, Message: message, LastTransitionTime: ago(since),
		}}},
	}
}

func TestAutoscaler_CannotScale(t *testing.T) {
	const prefix = "the HPA was unable to compute the replica count: failed to get cpu utilization: "
	for name, c := range map[string]struct {
		kind            autoscalingv2.HorizontalPodAutoscalerConditionType
		reason, message string
		says, fix       string // empty where nothing is wrong
	}{
		"no metrics-server": {
			autoscalingv2.ScalingActive, "FailedGetResourceMetric",
			prefix + "unable to get metrics for resource cpu: unable to fetch metrics from resource metrics API: the server could not find the requested resource (get pods.metrics.k8s.io)",
			"the server could not find the requested resource", "install metrics-server",
		},
		"no request": {
			autoscalingv2.ScalingActive, "FailedGetResourceMetric", prefix + "missing request for cpu in container proxy of Pod web-abc",
			"container proxy of pod web-abc requests no cpu", "set resources.requests.cpu of container proxy",
		},
		"a request of nothing": {
			autoscalingv2.ScalingActive, "FailedGetResourceMetric", prefix + "no metrics returned matched known pods",
			"no metrics returned", "set resources.requests.cpu above 0",
		},
		"no adapter": {
			autoscalingv2.ScalingActive, "FailedGetExternalMetric", "unable to get external metric shop/queue: no external metrics API",
			"external metric", "see that what serves the metric runs",
		},
		"no target": {
			autoscalingv2.AbleToScale, "FailedGetScale", `the HPA controller was unable to get the target's current scale: deployments.apps "web" not found`,
			"not found", "scaleTargetRef",
		},
		"two for the same pods": {
			autoscalingv2.ScalingActive, "AmbiguousSelector", "pods by selector app=web are controlled by multiple HPAs: [shop/web shop/other]",
			"multiple HPAs", "leave one autoscaler",
		},
		"turned off":      {autoscalingv2.ScalingActive, "ScalingDisabled", "scaling is disabled since the replica count of the target is zero", "", ""},
		"just scaled":     {autoscalingv2.AbleToScale, "BackoffDownscale", "the time since the previous scale is still within the downscale forbidden window", "", ""},
		"at its greatest": {autoscalingv2.ScalingLimited, "DesiredWithinRange", "the desired count is within the acceptable range", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			find := func(since, ready time.Duration) Finding {
				p := pod(up(ready))
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: ago(ready)}}
				return Find(Evidence{Pods: []*corev1.Pod{p}, Proven: true, Autoscaler: scaler(since, c.kind, c.reason, c.message), Now: now})
			}
			if c.says == "" {
				assert.Equal(t, Finding{}, find(time.Hour, time.Hour))
				return
			}
			young := find(time.Minute, time.Hour)
			assert.Nil(t, young.Diagnosis, "each says so at its start")
			assert.Equal(t, time.Minute, young.Recheck)
			assert.Nil(t, find(time.Hour, time.Minute).Diagnosis, "of new pods there are no figures yet")
			d := find(2*time.Minute, time.Hour).Diagnosis
			diagnosed(t, d, runnerapi.CauseAutoscalingFailed, c.says, c.fix)
			assert.Equal(t, "horizontalpodautoscaler/web", d.Object)
		})
	}
}
