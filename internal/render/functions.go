package render

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"strconv"
	"strings"

	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// maxRepeat bounds what one call of a template function makes.
const maxRepeat = 1 << 20

// bounds returns replacements for template functions with unbounded output. A refusal here names
// template and line; an exceeded process limit names only the template. A nil look finds nothing,
// as with `helm template`.
func bounds(ask asker, look func(apiVersion, kind, namespace, name string) (map[string]any, error)) map[string]any {
	functions := map[string]any{
		"repeat": func(n int, text string) (string, error) {
			if n > maxRepeat || n*max(len(text), 1) > maxRepeat {
				return "", fmt.Errorf("repeat makes at most %d bytes", maxRepeat)
			}
			return strings.Repeat(text, max(n, 0)), nil
		},
		"until":     func(n int) ([]int, error) { return steps(0, n, 1) },
		"untilStep": steps,
		reached:     func(template string) (string, error) { return "", ask.at(template) },
	}
	if look != nil {
		functions["lookup"] = look
	}
	return functions
}

func steps(start, stop, step int) ([]int, error) {
	if step == 0 || start < stop != (step > 0) {
		return []int{}, nil
	}
	if n := (stop - start) / step; n > maxRepeat>>4 {
		return nil, fmt.Errorf("a list has at most %d numbers", maxRepeat>>4)
	}
	var list []int
	for i := start; i < stop == (step > 0) && i != stop; i += step {
		list = append(list, i)
	}
	return list, nil
}

// reached is a function that each template begins with, so that it is known which one was
// at work when the process was stopped.
const reached = "pipeopsReached"

func beginning(template string) string { return "{{" + reached + " " + strconv.Quote(template) + "}}" }

// announce makes the templates of a chart and of its dependencies announce themselves when they
// begin.
func announce(c *chartv2.Chart) {
	for _, t := range c.Templates {
		if !strings.HasPrefix(path.Base(t.Name), "_") { // those are only included
			t.Data = append([]byte(beginning(path.Join(c.ChartFullPath(), t.Name))), t.Data...)
		}
	}
	for _, d := range c.Dependencies() {
		announce(d)
	}
}

// namesOf returns the full names of all templates.
func namesOf(c *chartv2.Chart) map[string]bool {
	names := map[string]bool{}
	for _, t := range c.Templates {
		names[path.Join(c.ChartFullPath(), t.Name)] = true
	}
	for _, d := range c.Dependencies() {
		for name := range namesOf(d) {
			names[name] = true
		}
	}
	return names
}

// known restricts announcements to names of templates: any other text would be sent to the Runner.
func known(functions map[string]any, names map[string]bool) {
	tell, ok := functions[reached].(func(string) (string, error))
	if !ok {
		return
	}
	functions[reached] = func(template string) (string, error) {
		if !names[template] {
			return "", errors.New("there is no such template")
		}
		return tell(template)
	}
}

var place = regexp.MustCompile(`([^\s()"<>:]+):(\d+)`)

// placeIn returns the template and line that an error begins with; empty for none. What comes after
// that may be a template's own words.
func placeIn(text string, names map[string]bool) string {
	m := place.FindStringSubmatch(text)
	if m == nil || !names[m[1]] {
		return ""
	}
	return m[0]
}

var firstLine = regexp.MustCompile(`([^\s(]+):1:(\d+)`)

// unannounced corrects columns of first lines in an error by what announce put there.
func unannounced(text string) string {
	return firstLine.ReplaceAllStringFunc(text, func(at string) string {
		m := firstLine.FindStringSubmatch(at)
		column, err := strconv.Atoi(m[2])
		if put := len(beginning(m[1])); err == nil && column >= put && !strings.HasPrefix(path.Base(m[1]), "_") {
			return fmt.Sprintf("%s:1:%d", m[1], column-put)
		}
		return at
	})
}

const maxLookups = 200

// looking returns lookup, as Helm's engine has it, by questions to the agent.
func looking(ask asker) func(apiVersion, kind, namespace, name string) (map[string]any, error) {
	asked := 0
	return func(apiVersion, kind, namespace, name string) (map[string]any, error) {
		if asked++; asked > maxLookups {
			return nil, fmt.Errorf("a chart looks up at most %d times", maxLookups)
		}
		raw, err := ask.lookup(Question{apiVersion, kind, namespace, name})
		if err != nil || raw == nil {
			return map[string]any{}, err
		}
		if name != "" {
			object := &unstructured.Unstructured{}
			err := object.UnmarshalJSON(raw)
			return object.UnstructuredContent(), err
		}
		list := &unstructured.UnstructuredList{}
		if err := list.UnmarshalJSON(raw); err != nil {
			return map[string]any{}, err
		}
		return list.UnstructuredContent(), nil
	}
}
