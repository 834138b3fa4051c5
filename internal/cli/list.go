package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	kjson "sigs.k8s.io/json"
)

// listFlags are the flags of commands that list.
type listFlags struct {
	noHeaders bool
	sortBy    pathFlag
	selector  selectorFlag
	// warnings returns the writer for warnings, which must not mix with the list.
	warnings func() io.Writer
}

// pathFlag is the path of --sort-by. A wrong one is refused before anything is asked for.
type pathFlag string

// String, Set and Type make it a pflag.Value.
func (p *pathFlag) String() string { return string(*p) }

// Set sets the flag's value.
func (p *pathFlag) Set(s string) error {
	if _, err := parseField(s); err != nil {
		return err
	}
	*p = pathFlag(s)
	return nil
}

// Type returns the text for the help.
func (p *pathFlag) Type() string { return "string" }

// selectorFlag is the labels of --selector.
type selectorFlag string

// String, Set and Type make it a pflag.Value.
func (l *selectorFlag) String() string { return string(*l) }

// Set sets the flag's value.
func (l *selectorFlag) Set(s string) error {
	if _, err := labels.Parse(s); err != nil {
		return err
	}
	*l = selectorFlag(s)
	return nil
}

// Type returns the text for the help.
func (l *selectorFlag) Type() string { return "string" }

// AddList is like Add for a command that lists items: it adds --no-headers and --sort-by.
func (o *Output) AddList(cmd *cobra.Command) {
	o.Add(cmd)
	o.list.warnings = cmd.ErrOrStderr
	cmd.Flags().BoolVar(&o.list.noHeaders, "no-headers", false, "print no header above a table")
	cmd.Flags().Var(&o.list.sortBy, "sort-by", "JSONPath of the field to sort by, such as .name")
}

// AddSelector adds --selector to a list of items with labels.
func (o *Output) AddSelector(cmd *cobra.Command) {
	cmd.Flags().VarP(&o.list.selector, "selector", "l", "list only items with these labels, such as env=prod,tier!=cache")
}

func (f listFlags) unused() bool { return f.sortBy == "" && f.selector == "" }

// arranged says which items of a list remain, in which order.
type arranged struct {
	all   int
	items []map[string]any
	order []int
}

// arrange sorts and selects the items of a list: an array, or an object with items.
func (f listFlags) arrange(v any) (any, *arranged, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, nil, err
	}
	whole := map[string]json.RawMessage{}
	var raw []json.RawMessage
	if bytes.HasPrefix(text, []byte("{")) {
		if err := errors.Join(json.Unmarshal(text, &whole), json.Unmarshal(whole["items"], &raw)); err != nil {
			return nil, nil, err
		}
	} else if err := json.Unmarshal(text, &raw); err != nil {
		return nil, nil, err
	}
	a, err := f.order(raw)
	if err != nil {
		return nil, nil, err
	}
	sorted := make([]json.RawMessage, len(a.order))
	for to, from := range a.order {
		sorted[to] = raw[from]
	}
	if whole["items"] == nil {
		return sorted, a, nil
	}
	if whole["items"], err = json.Marshal(sorted); err != nil {
		return nil, nil, err
	}
	return whole, a, nil
}

func (f listFlags) order(raw []json.RawMessage) (*arranged, error) {
	selected, err := labels.Parse(string(f.selector))
	if err != nil {
		return nil, Usage(fmt.Errorf("--selector: %w", err))
	}
	a := &arranged{all: len(raw), items: make([]map[string]any, len(raw))}
	keys := make([]any, len(raw))
	for i, text := range raw {
		if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &a.items[i]); err != nil {
			return nil, err
		}
		if f.sortBy != "" {
			if keys[i], err = valueAt(a.items[i], string(f.sortBy)); err != nil {
				return nil, Usage(fmt.Errorf("--sort-by: %w", err))
			}
		}
		if selected.Matches(labelsOf(a.items[i])) {
			a.order = append(a.order, i)
		}
	}
	if f.sortBy != "" {
		f.warnUnsorted(a, keys)
		slices.SortStableFunc(a.order, func(i, j int) int { return compare(keys[i], keys[j]) })
	}
	return a, nil
}

// warnUnsorted warns of a path that no item has. It is not an error: the path may be mistyped, or
// lead to an optional field.
func (f listFlags) warnUnsorted(a *arranged, keys []any) {
	has := func(i int) bool { return keys[i] != nil }
	if len(a.order) > 0 && !slices.ContainsFunc(a.order, has) {
		Say(f.warnings(), "warning: --sort-by: no item has %s, so the list is not sorted; -o json shows the fields", Printable(string(f.sortBy)))
	}
}

func labelsOf(item map[string]any) labels.Set {
	set := labels.Set{}
	found, _ := item["labels"].(map[string]any)
	for k, v := range found {
		set[k] = fmt.Sprint(v)
	}
	return set
}

// compare orders numbers by size and all else as text, which suits times. A missing value is first.
func compare(a, b any) int {
	if x, ok := number(a); ok {
		if y, ok := number(b); ok {
			return cmp.Compare(x, y)
		}
	}
	return cmp.Compare(sortText(a), sortText(b))
}

func number(v any) (float64, bool) {
	switch n := v.(type) {
	case int64:
		return float64(n), true
	case float64:
		return n, true
	}
	return 0, false
}

func sortText(v any) string {
	if v == nil {
		return ""
	}
	return fmt.Sprint(v)
}
