package controlapi

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
)

// The authors of Apps and Ingresses choose parts of what the agent sends. The control plane refuses
// a call as a whole, so that one part it does not take would hold up those of all others. The agent
// therefore makes each part fit, or leaves it out.

// The limits of an AppEvent, in characters.
const (
	maxImage = 512
	maxCause = 64
	maxEvent = 4096 // of Message and of Fix
)

// fitting returns the events as the control plane takes them, without those that it takes in no
// form.
func fitting(events []Event) []Event {
	var fit []Event
	for _, e := range events {
		if e.App != nil {
			about := *e.App
			about.Image, about.Cause = first(ascii(about.Image), maxImage), first(ascii(about.Cause), maxCause)
			about.Message, about.Fix = first(about.Message, maxEvent), first(about.Fix, maxEvent)
			e.App = &about
		}
		if fits(e) == nil {
			fit = append(fit, e)
		}
	}
	return fit
}

// first returns the first characters of a text.
func first(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most])
}

// ascii returns a text with a question mark in place of each character that is not printable ASCII.
func ascii(text string) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return '?'
		}
		return r
	}, text)
}

// Fits returns why the control plane would refuse the route, whatever else is sent with it.
func (r Route) Fits() error { return errors.Join(fits(r), RoutesRequest{Routes: []Route{r}}.check()) }

// checking has the validator, which serves one call at a time.
var checking struct {
	sync.Mutex
	*huma.ModelValidator
}

// fits returns why a value does not have the schema of its type.
func fits(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var plain any
	if err := json.Unmarshal(text, &plain); err != nil {
		return err
	}
	checking.Lock()
	defer checking.Unlock()
	if checking.ModelValidator == nil {
		checking.ModelValidator = huma.NewModelValidator()
	}
	return errors.Join(checking.Validate(reflect.TypeOf(v), plain)...)
}
