package kubeproblem

import (
	"errors"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var conflictWith = regexp.MustCompile(`conflict with "([^"]+)"`)

// FieldConflicts returns the field managers of a server-side apply that others' fields have
// refused, each with its fields: "kubectl-set has spec.replicas". It is empty for any other error.
func FieldConflicts(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsConflict(err) || status.Status().Details == nil {
		return ""
	}
	var order []string
	fields := map[string][]string{}
	for _, c := range status.Status().Details.Causes {
		if c.Type != metav1.CauseTypeFieldManagerConflict {
			continue
		}
		by := "another client"
		if m := conflictWith.FindStringSubmatch(c.Message); m != nil {
			by = m[1]
		}
		if fields[by] == nil {
			order = append(order, by)
		}
		fields[by] = append(fields[by], strings.TrimPrefix(c.Field, "."))
	}
	said := make([]string, 0, len(order))
	for _, by := range order {
		said = append(said, by+" has "+strings.Join(fields[by], ", "))
	}
	return strings.Join(said, "; ")
}
