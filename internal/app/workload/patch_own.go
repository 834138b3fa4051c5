package workload

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/denylist"
)

// own is a part of an object that no patch may change: a field of the App says it, or the agent
// needs it as it is, if no field is named.
type own struct{ path, field string }

var ownOfJob = []own{
	{"selector", ""},
	{"manualSelector", ""},
	{"suspend", ""},
	{"completions", "job.completions"},
	{"parallelism", "job.parallelism"},
	{"backoffLimit", "job.retries"},
	{"activeDeadlineSeconds", "job.deadlineSeconds"},
	{"ttlSecondsAfterFinished", "job.ttlSeconds"},
}

// ownOf are these parts of each kind, below its spec.
var ownOf = map[string][]own{
	"Deployment": {
		{"selector", ""},
		{"replicas", "replicas"},
		{"paused", "paused"},
		{"strategy", "update"},
		{"progressDeadlineSeconds", "progressDeadlineSeconds"},
	},
	"StatefulSet": {
		{"selector", ""},
		{"serviceName", ""},
		{"replicas", "replicas"},
		{"updateStrategy", "update"},
		{"volumeClaimTemplates", "volumes"},
	},
	"DaemonSet": {{"selector", ""}, {"updateStrategy", "update"}},
	"Job":       ownOfJob,
	"CronJob": append(below("jobTemplate.spec", ownOfJob),
		own{"schedule", "schedule.cron"},
		own{"timeZone", "schedule.timeZone"},
		own{"suspend", "schedule.suspended"},
		own{"concurrencyPolicy", "schedule.concurrency"},
		own{"startingDeadlineSeconds", "schedule.startingDeadlineSeconds"},
	),
	kindService:    {{"selector", ""}, {"clusterIP", ""}, {"clusterIPs", ""}, {"externalName", ""}},
	kindAutoscaler: {{"scaleTargetRef", ""}, {"minReplicas", "autoscaling.min"}, {"maxReplicas", "autoscaling.max"}},
}

// ownOfPod are those of a pod's spec.
var ownOfPod = []own{
	{"restartPolicy", ""},
	{"serviceAccountName", "serviceAccount.name"},
	{"serviceAccount", "serviceAccount.name"},
	{"automountServiceAccountToken", "serviceAccount.token"},
	{"terminationGracePeriodSeconds", "terminationGraceSeconds"},
}

// ownOfContainer are those of the containers that the App's spec has.
var ownOfContainer = []own{
	{"image", "image"},
	{"command", "command"},
	{"args", "args"},
	{"resources.requests.cpu", "resources"},
	{"resources.requests.memory", "resources"},
	{"resources.limits.cpu", "resources"},
	{"resources.limits.memory", "resources"},
}

// ownItems are lists and maps of which a patch may extend what the App's spec has.
var ownItems = []own{
	{"env", "env"},
	{"envFrom", "envFrom"},
	{"ports", "ports"},
	{"volumeMounts", "volumes and files"},
	{"resources.requests", "resources"},
	{"resources.limits", "resources"},
}

func below(path string, all []own) (out []own) {
	for _, o := range all {
		out = append(out, own{path + "." + o.path, o.field})
	}
	return out
}

// keepsOwn refuses a patch that changes what the App's own fields or the agent set.
func keepsOwn(patch map[string]any, o client.Object, was, is map[string]any) error {
	c := comparison{patch: patch, was: was, is: is}
	for _, key := range slices.Sorted(maps.Keys(patch)) {
		if key != "metadata" && key != "spec" && !strings.HasPrefix(key, "$") {
			return invalid(key, "leave it out: the target names the object", "a patch has metadata and spec alone")
		}
	}
	c.meta("metadata")
	c.same(below("spec", ownOf[KindOf(o)]))
	switch at := templatePath(o); {
	case at != "":
		c.meta(at + ".metadata")
		c.pod(at + ".spec")
		if strings.HasPrefix(at, "spec.jobTemplate") {
			c.meta("spec.jobTemplate.metadata")
		}
	case KindOf(o) == kindService:
		c.items("spec", []own{{"ports", "ports"}})
	}
	if c.err == nil {
		c.err = c.unmarked()
	}
	return c.err
}

// templatePath returns where a workload has the template of its pods.
func templatePath(o client.Object) string {
	switch KindOf(o) {
	case "Deployment", "StatefulSet", "DaemonSet", "Job":
		return "spec.template"
	case "CronJob":
		return "spec.jobTemplate.spec.template"
	}
	return ""
}

// comparison compares an object before and after a patch. It keeps the first error.
type comparison struct {
	patch, was, is map[string]any
	err            error
}

func at(tree map[string]any, path string) any {
	value, _, _ := unstructured.NestedFieldNoCopy(tree, strings.Split(path, ".")...)
	return value
}

func (c *comparison) refuse(path, field string) {
	switch {
	case c.err != nil:
	case field == "":
		c.err = invalid(path, "leave it out", "the agent sets it, and a patch cannot change it")
	default:
		c.err = invalid(path, "leave it out, and use "+field, "belongs to the App's own field %s", field)
	}
}

// same compares fields.
func (c *comparison) same(all []own) {
	for _, o := range all {
		if !reflect.DeepEqual(at(c.was, o.path), at(c.is, o.path)) {
			c.refuse(o.path, o.field)
		}
	}
}

// meta compares metadata: a patch can add labels and annotations, and no more.
func (c *comparison) meta(path string) {
	was, _ := at(c.was, path).(map[string]any)
	is, _ := at(c.is, path).(map[string]any)
	keys := maps.Clone(was)
	if keys == nil {
		keys = map[string]any{}
	}
	maps.Copy(keys, is)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		switch {
		case key != "labels" && key != "annotations":
			if !reflect.DeepEqual(was[key], is[key]) {
				c.refuse(path+"."+key, "")
			}
		case !covers(is[key], was[key]):
			c.refuse(path+"."+key, "")
		}
	}
}

// pod compares the parts of a pod's spec.
func (c *comparison) pod(path string) {
	c.same(below(path, ownOfPod))
	c.items(path, []own{{"volumes", "volumes and files"}})
	for _, list := range []string{"initContainers", "containers"} {
		was, _ := at(c.was, path+"."+list).([]any)
		is, _ := at(c.is, path+"."+list).([]any)
		for _, item := range was {
			container, _ := item.(map[string]any)
			c.container(path+"."+list, list == "initContainers", container, named(is, container["name"]))
		}
	}
}

// container compares a container that the App's spec has.
func (c *comparison) container(list string, initial bool, was, is map[string]any) {
	changes, _ := at(c.patch, list).([]any)
	for n := range changes {
		if change, ok := changes[n].(map[string]any); ok && change["name"] == was["name"] {
			list = fmt.Sprintf("%s[%d]", list, n)
			break
		}
	}
	fieldOf := func(o own) string {
		if initial {
			return "initContainers"
		}
		return o.field
	}
	if is == nil {
		c.refuse(list, fieldOf(own{field: "image"}))
		return
	}
	for _, o := range ownOfContainer {
		if !reflect.DeepEqual(at(was, o.path), at(is, o.path)) {
			c.refuse(list+"."+o.path, fieldOf(o))
		}
	}
	for _, o := range ownItems {
		if !covers(at(is, o.path), at(was, o.path)) {
			c.refuse(list+"."+o.path, fieldOf(o))
		}
	}
}

// items compares lists that a patch may extend.
func (c *comparison) items(path string, all []own) {
	for _, o := range below(path, all) {
		if !covers(at(c.is, o.path), at(c.was, o.path)) {
			c.refuse(o.path, o.field)
		}
	}
}

func named(list []any, name any) map[string]any {
	for _, item := range list {
		if object, ok := item.(map[string]any); ok && object["name"] == name {
			return object
		}
	}
	return nil
}

// covers reports whether a value still has all of what it was.
func covers(is, was any) bool {
	switch was := was.(type) {
	case nil:
		return true
	case map[string]any:
		now, _ := is.(map[string]any)
		for key, value := range was {
			if _, there := now[key]; !there || !covers(now[key], value) {
				return false
			}
		}
		return true
	case []any:
		now, _ := is.([]any)
		shift := len(now) - len(was) // most patches put items in front
		for i, item := range was {
			if at := i + shift; at >= 0 && covers(now[at], item) {
				continue
			}
			if !slices.ContainsFunc(now, func(have any) bool { return covers(have, item) }) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(is, was)
}

// unmarked refuses what no manifest may have either: marks of the agent, and external IPs.
func (c *comparison) unmarked() error {
	added := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(c.is)}
	added.SetName("")
	unstructured.RemoveNestedField(added.Object, "spec", "volumeClaimTemplates") // no patch changes them
	for _, path := range [][]string{{"metadata"}, {"spec", "template", "metadata"}, {"spec", "jobTemplate", "metadata"}, {"spec", "jobTemplate", "spec", "template", "metadata"}} {
		for _, part := range []string{"labels", "annotations"} {
			had, _, _ := unstructured.NestedMap(c.was, append(slices.Clone(path), part)...)
			for key := range had {
				unstructured.RemoveNestedField(added.Object, append(slices.Clone(path), part, key)...)
			}
		}
	}
	return denylist.Agent{}.Check(added)
}
