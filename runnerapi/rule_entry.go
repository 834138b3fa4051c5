package runnerapi

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/printable"
)

// Entry returns the rule's field and message for a spec that breaks the rule. Of a field that is a
// list, they name the first entry with which it does.
func (r Rule) Entry(s AppSpec) (field, message string) {
	changed := s.DeepCopy()
	list := listAt(reflect.ValueOf(changed).Elem(), r.Field)
	if !list.IsValid() {
		return r.Field, r.Message
	}
	all := reflect.ValueOf(list.Interface())
	for n := range all.Len() + 1 {
		list.Set(all.Slice(0, n))
		if r.Holds(*changed) {
			continue
		}
		if n == 0 {
			break // the list does not break it
		}
		message = r.Message
		if entry := all.Index(n - 1); entry.Kind() == reflect.String {
			message = strings.Replace(message, "an entry", fmt.Sprintf("%q", printable.Clip(entry.String())), 1)
		}
		return fmt.Sprintf("%s[%d]", r.Field, n-1), message
	}
	return r.Field, r.Message
}

// listAt returns the list at a path of a struct in JSON; the zero Value for another field.
func listAt(at reflect.Value, path string) reflect.Value {
	for name := range strings.SplitSeq(path, ".") {
		for at.Kind() == reflect.Pointer {
			at = at.Elem()
		}
		if at.Kind() != reflect.Struct {
			return reflect.Value{}
		}
		of := at.Type()
		at = at.FieldByNameFunc(func(field string) bool {
			f, _ := of.FieldByName(field)
			known, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			return known == name
		})
	}
	if at.Kind() != reflect.Slice {
		return reflect.Value{}
	}
	return at
}
