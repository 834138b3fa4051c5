// Package kubeproblem translates errors of the Kubernetes API into the Runner API's form: a code,
// the field at fault, and the fix.
package kubeproblem

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// From is like FromObject for calls whose body is an object's spec: its fields are those of the
// body.
func From(err error, doing string) error {
	err = FromObject(err, doing)
	p := &problem.Error{}
	if !errors.As(err, &p) || !strings.HasPrefix(p.Field, "spec.") {
		return err
	}
	p.Field = strings.TrimPrefix(p.Field, "spec.")
	for i := range p.Fields {
		p.Fields[i].Field = strings.TrimPrefix(p.Fields[i].Field, "spec.")
	}
	return err
}

// FromObject turns an error of the Kubernetes API into a problem. It wraps any other error with
// doing, unless that is known to be temporary: it becomes a 500 without detail.
func FromObject(err error, doing string) error {
	if err == nil {
		return nil
	}
	p := &problem.Error{}
	if errors.As(err, &p) {
		return err
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		if p := fromStatus(status.Status(), err); p != nil {
			return p
		}
		return fmt.Errorf("%s: %w", doing, err)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return unavailable("the Kubernetes API did not answer in time while " + doing)
	}
	if _, ok := errors.AsType[net.Error](err); ok && !errors.Is(err, context.Canceled) {
		return unavailable("the Kubernetes API cannot be reached while " + doing)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

func fromStatus(s metav1.Status, err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return notFound(s)
	case apierrors.IsAlreadyExists(err):
		return problem.Errorf(problem.Conflict, "choose another name, or delete the existing object first", "%s exists already", objectOf(s.Details))
	case apierrors.IsConflict(err):
		if theirs := FieldConflicts(err); theirs != "" {
			return problem.Errorf(problem.Conflict, "leave out the fields that others have set", "%s has fields of other clients: %s", objectOf(s.Details), theirs)
		}
		return problem.Errorf(problem.Busy, "send it again", "other clients changed %s at the same time", objectOf(s.Details))
	case apierrors.IsInvalid(err):
		return invalid(s)
	case apierrors.IsBadRequest(err):
		return problem.Errorf(problem.Invalid, "correct what the cluster names", "%s", s.Message)
	case apierrors.IsRequestEntityTooLargeError(err):
		return problem.Errorf(problem.TooLarge, "send less", "%s", s.Message)
	case apierrors.IsForbidden(err):
		return forbidden(s.Message)
	case apierrors.IsUnauthorized(err):
		return unavailable("the Kubernetes API does not accept the agent's credentials")
	case apierrors.IsTooManyRequests(err), apierrors.IsServerTimeout(err), apierrors.IsTimeout(err),
		apierrors.IsServiceUnavailable(err), apierrors.IsInternalError(err):
		return passing(s)
	}
	if refused(s.Message) {
		return admission(s.Message)
	}
	return nil
}

// IsUnserved reports whether the API server does not serve the kind of a request: its definition
// was deleted, or is not established yet.
func IsUnserved(err error) bool {
	return apierrors.IsNotFound(err) && strings.Contains(err.Error(), unserved)
}

const unserved = "the server could not find the requested resource"

func notFound(s metav1.Status) error {
	if strings.Contains(s.Message, unserved) {
		return unavailable("the cluster does not serve " + kindOf(s.Details))
	}
	return problem.Errorf(problem.NotFound, "check the name and the namespace", "%s", s.Message)
}

// objectOf names the object of an error.
func objectOf(d *metav1.StatusDetails) string {
	if d == nil || d.Kind == "" || d.Name == "" {
		return "the object"
	}
	kind := d.Kind
	if d.Group != "" {
		kind += "." + d.Group
	}
	return kind + "/" + d.Name
}

func kindOf(d *metav1.StatusDetails) string {
	if d == nil || d.Kind == "" {
		return "this resource"
	}
	return d.Kind
}

func invalid(s metav1.Status) error {
	p := problem.Errorf(problem.Invalid, problem.CorrectField, "%s", withoutValue(s.Message))
	if s.Details == nil {
		return p
	}
	for _, c := range s.Details.Causes {
		e := problem.FieldError{Field: cmp.Or(problem.Field(c.Field), "body"), Message: withoutValue(c.Message)}
		if fixed.MatchString(e.Message) {
			p.Fix = fmt.Sprintf("rename the object, or have the one that exists deleted: leave it out once, or the cluster's owner runs kubectl delete %s %s",
				resourceOf(s.Details), s.Details.Name)
		}
		if !slices.Contains(p.Fields, e) {
			p.Fields = append(p.Fields, e)
		}
	}
	if len(p.Fields) > 0 {
		p.Field, p.Detail = p.Fields[0].Field, p.Fields[0].Message
	}
	if len(p.Fields) == 1 {
		p.Fields = nil
	}
	return p
}

// fixed matches what the API server says of fields that it never changes.
var fixed = regexp.MustCompile(`immutable|may not change once set|may not change fields other than|updates to \w+ spec for fields other than|cannot change roleRef`)

// value is a whole object or list in an error, in JSON or in Go's notation.
var value = regexp.MustCompile(`(?s)Invalid value: [&*]?[\w.\[\]]*[{\[].*[}\]]: `)

// withoutValue returns an error's first line without an object or list that it quotes: Kubernetes
// adds a comparison in Go's notation below.
func withoutValue(message string) string {
	first, _, _ := strings.Cut(value.ReplaceAllString(message, ""), "\n")
	return first
}

// resourceOf returns a kind as kubectl takes it.
func resourceOf(d *metav1.StatusDetails) string {
	kind := strings.ToLower(d.Kind)
	if d.Group != "" {
		kind += "." + d.Group
	}
	return kind
}

// Forbidden returns the cluster's word for five different things.
func forbidden(message string) error {
	switch {
	case strings.Contains(message, "exceeded quota"):
		return problem.Errorf(problem.Forbidden, "ask for less, delete what is not needed, or have the namespace's quota raised",
			"the namespace's quota does not allow it: %s", message)
	case strings.Contains(message, "because it is being terminated"):
		return problem.Errorf(problem.Busy, "wait until the namespace is gone and create it again, or use another one", "the namespace is being deleted")
	case strings.Contains(message, "attempting to grant RBAC permissions not currently held"):
		return problem.Errorf(problem.Forbidden, "leave these rights out, or have the owner of the cluster give them to the agent in this namespace: "+
			"deployments/manifest-rights.yaml has the usual ones (ClusterRole pipeops-agent-grantable, docs/deployer/manifests.md)",
			"the agent grants no right that it does not hold itself, and lacks %s", notHeld(message))
	case permission.MatchString(message):
		m := permission.FindStringSubmatch(message)
		what := m[1] + " " + m[2]
		if m[3] != "" {
			what += " in namespace " + m[3]
		}
		return problem.Errorf(problem.Forbidden, "let the agent "+what+": apply the agent's manifest again, or check the RoleBinding pipeops-agent of the namespace",
			"the agent may not %s", what)
	}
	return admission(message)
}

var permission = regexp.MustCompile(`cannot (\S+) resource "([^"]+)" in API group "[^"]*"(?: in the namespace "([^"]+)")?`)

var ungrantable = regexp.MustCompile(`\{APIGroups:\[([^\]]*)\], Resources:\[([^\]]*)\](?:, ResourceNames:\[[^\]]*\])?, Verbs:\[([^\]]*)\]\}`)

// notHeld returns the rights of an escalation that the API server refused, as kubectl names them.
func notHeld(message string) string {
	missing := ungrantable.FindAllStringSubmatch(message, -1)
	rights := make([]string, 0, len(missing))
	for _, m := range missing {
		verbs := strings.ReplaceAll(strings.ReplaceAll(m[3], `" "`, ", "), `"`, "")
		resource, group := strings.Trim(m[2], `"`), strings.Trim(m[1], `"`)
		if group != "" {
			resource += "." + group
		}
		rights = append(rights, verbs+" of "+resource)
	}
	if len(rights) == 0 {
		return "some of these"
	}
	return strings.Join(rights, "; ")
}

func refused(message string) bool {
	return strings.Contains(message, "admission webhook") || strings.Contains(message, "denied the request") ||
		strings.Contains(message, "ValidatingAdmissionPolicy")
}

func admission(message string) error {
	return problem.Errorf(problem.Forbidden, "change what the cluster's policy names, or ask its owner",
		"the cluster refused it: %s", message)
}

// down matches the API server's text, with a 500, about a webhook that it could not reach.
var down = regexp.MustCompile(`failed calling webhook "([^"]+)": (.*)`)

func passing(s metav1.Status) error {
	if m := down.FindStringSubmatch(s.Message); m != nil {
		return problem.Errorf(problem.Unavailable,
			"bring webhook "+m[1]+" back, or ask its owner (kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations)",
			"webhook %s of the cluster does not answer, so nothing is admitted: %s", m[1], m[2]).WithRetryAfter(2 * time.Second)
	}
	if refused(s.Message) {
		return unavailable("an admission webhook of the cluster does not answer: " + s.Message)
	}
	p := unavailable("the Kubernetes API is busy or starting: " + s.Message)
	if s.Code == http.StatusTooManyRequests {
		p = problem.Errorf(problem.TooManyRequests, "try again later", "the Kubernetes API asks to slow down")
	}
	if s.Details != nil && s.Details.RetryAfterSeconds > 0 {
		p.RetryAfter = time.Duration(s.Details.RetryAfterSeconds) * time.Second
	}
	return p
}

func unavailable(detail string) *problem.Error {
	return problem.Errorf(problem.Unavailable, "try again in a few seconds; if it stays, look at the cluster", "%s", detail).
		WithRetryAfter(2 * time.Second)
}
