package runnerapi

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// The methods below find values that Kubernetes accepts but that are almost certainly mistakes.
// Such values are refused when a client sends them. Validate does not refuse them, because it also
// checks objects that have been in the cluster for long.

// leastMemory is less than any program needs: a smaller number lacks its unit.
const leastMemory = 1 << 20

// Mistakes returns the mistakes in an App.
func (s AppSpec) Mistakes() []FieldError {
	v := &validation{}
	v.memoryMistakes("resources", s.Resources)
	for i, c := range s.InitContainers {
		v.memoryMistakes(fmt.Sprintf("initContainers[%d].resources", i), c.Resources)
	}
	for i, j := range s.Jobs {
		v.memoryMistakes(fmt.Sprintf("jobs[%d].resources", i), j.Resources)
	}
	return v.errs
}

// Mistakes returns the mistakes in a build.
func (t BuildTemplate) Mistakes(field string) []FieldError {
	v := &validation{}
	v.memoryMistakes(field, t.Resources)
	return v.errs
}

// Mistakes returns the mistakes in a namespace.
func (s NamespaceSpec) Mistakes() []FieldError {
	v := &validation{}
	if q := s.Quota; q != nil {
		v.memoryMistakes("quota", Resources{Requests: q.Requests, Limits: q.Limits})
	}
	if s.Limits != nil {
		v.memoryMistakes("defaultLimits", Resources{Requests: s.Limits.Requests, Limits: s.Limits.Limits})
	}
	return v.errs
}

func (v *validation) memoryMistakes(field string, r Resources) {
	v.memoryMistake(field+".requests.memory", r.Requests.Memory)
	v.memoryMistake(field+".limits.memory", r.Limits.Memory)
}

func (v *validation) memoryMistake(field, amount string) {
	q, err := resource.ParseQuantity(amount)
	if amount == "" || err != nil || q.Sign() <= 0 || q.CmpInt64(leastMemory) >= 0 {
		return
	}
	if strings.Trim(amount, "0123456789") == "" {
		v.add(field, "%q is %s bytes, which no program runs in: write %q", amount, amount, amount+"Mi")
		return
	}
	v.add(field, "%q is less than 1Mi, which no program runs in: write it as 64Mi, for example", amount)
}
