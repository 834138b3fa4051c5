package ingress

import (
	"cmp"
	"fmt"
	"regexp"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/gateway"
)

// httpRule is what a rule of an HTTPRoute does with the requests of its matches.
type httpRule struct {
	backends []httpBackend
	filters  *gateway.Filters // without the mirrors; nil for none
	mirrors  []httpMirror
	types    []string      // of its filters
	within   time.Duration // zero for what the annotations say
}

// httpBackend is a backend of a rule.
type httpBackend struct {
	to      backendRef
	weight  int
	missing string // why no request gets there; empty for a Service
	filters *gateway.Filters
}

type httpMirror struct {
	to        backendRef
	share, of int
}

// redirects reports whether a rule needs no backend.
func (r *httpRule) redirects() bool { return r.filters != nil && r.filters.Redirect != nil }

// maxWeight is the largest weight of a backend, as HTTPRoute's definition has it.
const maxWeight = 1_000_000

// ruleOf returns what a rule does, and why it cannot be carried.
func ruleOf(at string, rule map[string]any, namespace string) (*httpRule, string) {
	reason := unknownField(at, rule, carriedRule)
	read, why := filtersOf(at+".filters", rule["filters"], namespace, false)
	reason = cmp.Or(reason, why)
	r := &httpRule{filters: read.filters, mirrors: read.mirrors, types: read.types}
	for i, ref := range objects(rule["backendRefs"]) {
		b, why := backendOf(fmt.Sprintf("%s.backendRefs[%d]", at, i), ref, namespace)
		reason = cmp.Or(reason, why)
		r.backends = append(r.backends, b)
	}
	if r.redirects() && len(r.backends) > 0 {
		reason = cmp.Or(reason, at+" redirects and has backends; remove one of both")
	}
	timeouts, _ := rule["timeouts"].(map[string]any)
	r.within, why = timeoutOf(at+".timeouts", timeouts)
	return r, cmp.Or(reason, why)
}

// backendOf returns a backend of a rule, and why it cannot be carried.
func backendOf(at string, ref map[string]any, namespace string) (b httpBackend, reason string) {
	if reason = unknownField(at, ref, carriedBackend); reason != "" {
		return b, reason
	}
	read, reason := filtersOf(at+".filters", ref["filters"], namespace, true)
	b.filters, b.weight = read.filters, 1
	if weight, given := number(ref["weight"]); given {
		b.weight = int(min(max(weight, 0), maxWeight))
	}
	group, _ := ref["group"].(string)
	kind, _ := ref["kind"].(string)
	if group != "" || kind != "" && kind != "Service" {
		b.missing = at + " is not a Service"
		return b, reason
	}
	var why string
	b.to, why = serviceOf(at, ref, namespace)
	return b, cmp.Or(reason, why)
}

// serviceOf returns the Service that a reference names.
func serviceOf(at string, ref map[string]any, namespace string) (to backendRef, reason string) {
	port, _ := number(ref["port"])
	to.name, _ = ref["name"].(string)
	to.namespace, _ = ref["namespace"].(string)
	to.namespace, to.port = cmp.Or(to.namespace, namespace), int32(min(max(port, 0), 1<<16))
	if to.port == 0 || to.port == 1<<16 {
		return to, at + ".port is missing"
	}
	return to, ""
}

// durations of the Gateway API (GEP-2257).
var durations = regexp.MustCompile(`^([0-9]{1,5}(h|m|s|ms)){1,4}$`)

const (
	// maxTimeout bounds the timeouts of a rule, like the annotation's.
	maxTimeout = time.Hour
	// finely is up to when timeouts are kept to a tenth of a second; longer ones have whole
	// seconds. Each different time has its own connections to Services.
	finely = 10 * time.Second
)

// timeoutOf returns how long a backend may take to begin its answer, zero if the rule does not say.
func timeoutOf(at string, timeouts map[string]any) (within time.Duration, reason string) {
	if reason = unknownField(at, timeouts, []string{"request", "backendRequest"}); reason != "" {
		return 0, reason
	}
	for _, name := range []string{"request", "backendRequest"} {
		text, given := timeouts[name].(string)
		if !given {
			continue
		}
		d, err := time.ParseDuration(text)
		if err != nil || !durations.MatchString(text) || d > maxTimeout {
			return 0, at + "." + name + " is not a duration up to 1h, such as 90s"
		}
		if d == 0 { // none
			d = maxTimeout
		}
		if within == 0 || d < within {
			within = d
		}
	}
	step := time.Second
	if within < finely {
		step = time.Second / 10
	}
	return (within + step - 1).Truncate(step), ""
}
