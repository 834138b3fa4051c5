package ingress

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
)

const (
	// statusPause is how long changes are gathered before the status of Gateways is looked at, and
	// statusAgain when it is looked at though nothing was heard.
	statusPause, statusAgain = time.Second, time.Minute
	statusTimeout            = 10 * time.Second
)

type gatewayStatus struct {
	Addresses  []gatewayAddress   `json:"addresses,omitempty"`
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	Listeners  []listenerStatus   `json:"listeners,omitempty"`
}

type gatewayAddress struct {
	Type  string `json:"type"`
	Value string `json:"value"`
}

type listenerStatus struct {
	Name           string             `json:"name"`
	SupportedKinds []routeKind        `json:"supportedKinds"`
	AttachedRoutes int32              `json:"attachedRoutes"`
	Conditions     []metav1.Condition `json:"conditions"`
}

// parentStatus is what one controller says of one reference of an HTTPRoute.
type parentStatus struct {
	ParentRef      map[string]any     `json:"parentRef"`
	ControllerName string             `json:"controllerName"`
	Conditions     []metav1.Condition `json:"conditions"`
}

// keepStatus writes the status of our GatewayClasses, of their Gateways, and of what HTTPRoutes
// become there, until the context ends. Only the leader writes.
func (t *gatewayAPI) keepStatus(ctx context.Context) error {
	for t.due.WaitFor(ctx, retry.Jitter(statusAgain)) {
		if !retry.Wait(ctx, retry.Jitter(statusPause)) {
			return nil
		}
		if !t.leads() || !t.known() {
			continue
		}
		if err := t.writeStatus(ctx); err != nil && ctx.Err() == nil {
			t.log.Debug().Err(err).Msg("failed to write the status of Gateways and HTTPRoutes; retrying")
		}
	}
	return nil
}

// writeStatus writes what has changed. One object that cannot be written keeps no other one from
// it.
func (t *gatewayAPI) writeStatus(ctx context.Context) error {
	classes, err := t.ourClasses(ctx)
	if err != nil {
		return err
	}
	p, err := t.parents(ctx)
	if err != nil {
		return err
	}
	var failed []error
	note := func(err error) { failed = append(failed, err) }
	for _, class := range classes {
		note(t.writeClass(ctx, class))
	}
	attached, err := t.writeRoutes(ctx, p)
	note(err)
	list, err := t.gateways.List(ctx)
	if err != nil {
		return err
	}
	for i := range list {
		if g := p.gateways[types.NamespacedName{Namespace: list[i].GetNamespace(), Name: list[i].GetName()}]; g != nil {
			note(t.patchStatus(ctx, &list[i], t.statusOf(g, attached)))
		}
	}
	return errors.Join(failed...)
}

func (t *gatewayAPI) writeClass(ctx context.Context, class *unstructured.Unstructured) error {
	had, err := decodeObject[struct {
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}](class)
	if err != nil {
		return err
	}
	conditions := slices.Clone(had.Status.Conditions)
	reason, message, status := accepted, "", metav1.ConditionTrue
	if specOf(class)["parametersRef"] != nil {
		reason, message, status = "InvalidParameters", "the gateway has no parameters; remove spec.parametersRef", metav1.ConditionFalse
	}
	setCondition(&conditions, class.GetGeneration(), "Accepted", status, reason, message)
	return t.patchStatus(ctx, class, map[string]any{"conditions": conditions})
}

func setCondition(all *[]metav1.Condition, generation int64, kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(all, metav1.Condition{Type: kind, Status: status, ObservedGeneration: generation, Reason: reason, Message: message})
}

// attachedTo names a listener of a Gateway.
type attachedTo struct {
	gateway  types.NamespacedName
	listener string
}

// writeRoutes writes what became of the references of HTTPRoutes, and returns how many are attached
// to each listener.
func (t *gatewayAPI) writeRoutes(ctx context.Context, p *parents) (attached map[attachedTo]int32, err error) {
	list, err := t.httpRoutes.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list HTTPRoutes: %w", err)
	}
	grants, err := t.grants.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list ReferenceGrants: %w", err)
	}
	attached = map[attachedTo]int32{}
	var failed []error
	for i := range list {
		h := &list[i]
		if !h.GetDeletionTimestamp().IsZero() || !t.store.Scope.Covers(h.GetNamespace()) {
			continue
		}
		all := p.attach(h)
		_, uncarried := matchesOf(h, t.patterns.compile)
		for _, a := range all {
			if uncarried != "" {
				break
			}
			for _, name := range a.listeners {
				attached[attachedTo{types.NamespacedName{Namespace: a.gateway.Namespace, Name: a.gateway.Name}, name}]++
			}
		}
		status, err := t.parentsOf(ctx, h, all, grants)
		if status != nil {
			err = t.patchStatus(ctx, h, map[string]any{"parents": status})
		}
		failed = append(failed, err)
	}
	return attached, errors.Join(failed...)
}

// parentsOf returns the parents in the status of an HTTPRoute: ours, after those of others. It
// returns nil if there is nothing of ours to say, nor to take back.
func (t *gatewayAPI) parentsOf(ctx context.Context, h *unstructured.Unstructured, all []attachment, grants []unstructured.Unstructured) ([]parentStatus, error) {
	had, err := decodeObject[struct {
		Status struct {
			Parents []parentStatus `json:"parents"`
		} `json:"status"`
	}](h)
	if err != nil {
		return nil, err
	}
	kept := make([]parentStatus, 0, len(had.Status.Parents)+len(all))
	for _, p := range had.Status.Parents {
		if p.ControllerName != ControllerName {
			kept = append(kept, p)
		}
	}
	if len(all) == 0 && len(kept) == len(had.Status.Parents) {
		return nil, nil
	}
	uncarried, unresolved, message := t.judgeRules(ctx, h, grants)
	for _, a := range all {
		p := parentStatus{ParentRef: a.ref, ControllerName: ControllerName}
		if i := slices.IndexFunc(had.Status.Parents, func(p parentStatus) bool {
			return p.ControllerName == ControllerName && reflect.DeepEqual(p.ParentRef, a.ref)
		}); i >= 0 {
			p.Conditions = slices.Clone(had.Status.Parents[i].Conditions)
		}
		if a.reason == accepted && uncarried != "" {
			a.reason, a.message = "UnsupportedValue", uncarried
		}
		setCondition(&p.Conditions, h.GetGeneration(), "Accepted", truth(a.reason == accepted), a.reason, a.message)
		setCondition(&p.Conditions, h.GetGeneration(), "ResolvedRefs", truth(unresolved == ""), cmp.Or(unresolved, "ResolvedRefs"), message)
		kept = append(kept, p)
	}
	return kept, nil
}

func truth(holds bool) metav1.ConditionStatus {
	if holds {
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}

// judgeRules returns why an HTTPRoute is not served, and the reason and message of the first
// reference that does not lead to a Service.
func (t *gatewayAPI) judgeRules(ctx context.Context, h *unstructured.Unstructured, grants []unstructured.Unstructured) (uncarried, unresolved, message string) {
	matches, uncarried := matchesOf(h, t.patterns.compile)
	var rule *httpRule
	for _, m := range matches {
		if m.rule == rule {
			continue
		}
		rule = m.rule
		if of := t.routeOfRule(ctx, h.GetNamespace(), rule, grants); of.unresolved != "" {
			return uncarried, of.unresolved, of.unresolvedWhy
		}
	}
	return uncarried, "", ""
}

// statusOf returns the status of a Gateway.
func (t *gatewayAPI) statusOf(g *gatewayObject, attached map[attachedTo]int32) gatewayStatus {
	status := gatewayStatus{Conditions: slices.Clone(g.Status.Conditions), Listeners: []listenerStatus{}}
	public := t.public.Load()
	unserved := "the agent does not know yet whether the control plane has a gateway"
	switch {
	case public == nil:
	case public.Off != "":
		unserved = public.Off
	case public.Domain == "":
		unserved = "the control plane has no gateway"
	default:
		unserved, status.Addresses = "", []gatewayAddress{{"Hostname", public.Address}}
	}
	valid := 0
	for i := range g.Spec.Listeners {
		l := &g.Spec.Listeners[i]
		s := listenerStatusOf(g, l, unserved)
		s.AttachedRoutes = attached[attachedTo{types.NamespacedName{Namespace: g.Namespace, Name: g.Name}, l.Name}]
		if reason, _ := l.invalid(); reason == "" {
			valid++
		}
		status.Listeners = append(status.Listeners, s)
	}
	reason, message := accepted, ""
	switch {
	case len(g.Spec.Addresses) > 0:
		reason, message = "UnsupportedAddress", "the control plane's gateway has its own address; remove spec.addresses"
	case valid < len(g.Spec.Listeners):
		reason, message = "ListenersNotValid", "the gateway cannot serve some of the listeners; see their conditions"
	}
	takes := valid > 0 && reason != "UnsupportedAddress"
	setCondition(&status.Conditions, g.Generation, "Accepted", truth(takes), reason, message)
	switch {
	case !takes:
		setCondition(&status.Conditions, g.Generation, "Programmed", metav1.ConditionFalse, "Invalid", message)
	case unserved != "":
		setCondition(&status.Conditions, g.Generation, "Programmed", metav1.ConditionFalse, "AddressNotAssigned", unserved)
	default:
		setCondition(&status.Conditions, g.Generation, "Programmed", metav1.ConditionTrue, "Programmed", "")
	}
	return status
}

func listenerStatusOf(g *gatewayObject, l *listener, unserved string) listenerStatus {
	s := listenerStatus{Name: l.Name, SupportedKinds: []routeKind{}}
	if i := slices.IndexFunc(g.Status.Listeners, func(had listenerStatus) bool { return had.Name == l.Name }); i >= 0 {
		s.Conditions = slices.Clone(g.Status.Listeners[i].Conditions)
	}
	if l.carries() {
		s.SupportedKinds = append(s.SupportedKinds, routeKind{gatewayGroup, "HTTPRoute"})
	}
	set := func(kind string, status metav1.ConditionStatus, reason, message string) {
		setCondition(&s.Conditions, g.Generation, kind, status, reason, message)
	}
	invalid, why := l.invalid()
	set("Accepted", truth(invalid == ""), cmp.Or(invalid, accepted), why)
	set("Conflicted", metav1.ConditionFalse, "NoConflicts", "")
	if slices.ContainsFunc(l.AllowedRoutes.Kinds, func(k routeKind) bool { return !k.supported() }) {
		set("ResolvedRefs", metav1.ConditionFalse, "InvalidRouteKinds", "the gateway has HTTPRoutes alone")
	} else {
		set("ResolvedRefs", metav1.ConditionTrue, "ResolvedRefs", "")
	}
	switch {
	case invalid != "":
		set("Programmed", metav1.ConditionFalse, "Invalid", why)
	case unserved != "":
		set("Programmed", metav1.ConditionFalse, "Pending", unserved)
	default:
		set("Programmed", metav1.ConditionTrue, "Programmed", "")
	}
	return s
}

// patchStatus writes fields of an object's status, unless it has them. Another controller's write
// meanwhile makes it fail: the next look begins with that.
func (t *gatewayAPI) patchStatus(ctx context.Context, o *unstructured.Unstructured, status any) error {
	text, err := json.Marshal(status)
	if err != nil {
		return fmt.Errorf("encode a status: %w", err)
	}
	var want map[string]any
	if err := json.Unmarshal(text, &want); err != nil {
		return fmt.Errorf("decode a status: %w", err)
	}
	had, _, _ := unstructured.NestedMap(o.Object, "status")
	if _, there := want["addresses"]; !there && had["addresses"] != nil {
		want["addresses"] = nil // a merge patch takes it out
	}
	same := true
	for name, value := range want {
		same = same && sameJSON(value, had[name])
	}
	if same {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": o.GetResourceVersion()}, "status": want})
	if err != nil {
		return fmt.Errorf("encode a patch: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	to := &unstructured.Unstructured{}
	to.SetGroupVersionKind(o.GroupVersionKind())
	to.SetNamespace(o.GetNamespace())
	to.SetName(o.GetName())
	err = t.store.Live.Status().Patch(ctx, to, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(objectmeta.FieldManager))
	if apierrors.IsNotFound(err) {
		return nil // it is deleted
	}
	if err != nil {
		return fmt.Errorf("write the status of %s %s/%s: %w", o.GetKind(), o.GetNamespace(), o.GetName(), err)
	}
	return nil
}

// sameJSON compares what was decoded from JSON, whose numbers have several types.
func sameJSON(a, b any) bool {
	x, errA := json.Marshal(a)
	y, errB := json.Marshal(b)
	return errA == nil && errB == nil && string(x) == string(y)
}
