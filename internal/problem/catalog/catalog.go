// Package catalog is the one table of errors that have a code: what each means, what to do, and the
// page about it. It is for people: command lines and docs/reference/errors.md print it. Wires carry
// an error's name alone, so no server and no client needs this package.
package catalog

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

//go:generate go test . -run TestCatalog_PageCommitted -update

// Site is where the pages are.
const Site = "https://github.com/pipeops/pipeops-vm-agent/blob/main/"

// Page lists all entries.
const Page = "docs/reference/errors.md"

// Entry is one error. Its code is never used for another one, also after the error is gone.
type Entry struct {
	Code    string `json:"code"`
	Name    string `json:"name"` // on the wire: an API's code, or the cause of a diagnosis
	Title   string `json:"title"`
	Meaning string `json:"meaning"`
	Fix     string `json:"fix"`
	Page    string `json:"page"`
}

// URL returns the address of the page about the error.
func (e Entry) URL() string { return Site + e.Page }

// Area is a range of codes: those that begin with its prefix.
type Area struct {
	Prefix  string
	Title   string
	Entries []Entry
}

// Areas returns all entries, in the order of their codes.
func Areas() []Area {
	return []Area{
		{"PO-1", "Calls of every API", calls},
		{"PO-2", "Diagnoses of Apps", diagnoses},
		{"PO-3", "The cluster owner's policy", policies},
		{"PO-4", "Registration and identity", registrations},
		{"PO-5", "Git sources and builds", sources},
		{"PO-6", "Announcements", announcements},
		{"PO-9", "The installer", installer},
	}
}

// All returns all entries, in the order of their codes.
func All() (all []Entry) {
	for _, area := range Areas() {
		all = append(all, area.Entries...)
	}
	return all
}

// Named returns the entry with a name, spelled as on the wire.
func Named(name string) (Entry, bool) {
	all := All()
	i := slices.IndexFunc(all, func(e Entry) bool { return e.Name == name })
	if i < 0 {
		return Entry{}, false
	}
	return all[i], true
}

var number = regexp.MustCompile(`(?i)^(?:PO-?)?([0-9]{4})$`)

// Find returns the entries that a code or a name means, in any case. There are several where names
// differ by their case alone, and the text is neither of them.
func Find(text string) (found []Entry) {
	if exact, ok := Named(text); ok {
		return []Entry{exact}
	}
	if m := number.FindStringSubmatch(text); m != nil {
		text = "PO-" + m[1]
	}
	for _, e := range All() {
		if e.Code == text || strings.EqualFold(e.Name, text) {
			found = append(found, e)
		}
	}
	return found
}

// Near returns the entry of the same area with the nearest number; false if the text is not a code,
// or there is no such area.
func Near(code string) (near Entry, found bool) {
	m := number.FindStringSubmatch(code)
	if m == nil {
		return Entry{}, false
	}
	for _, area := range Areas() {
		if !strings.HasPrefix("PO-"+m[1], area.Prefix) {
			continue
		}
		return slices.MinFunc(area.Entries, func(a, b Entry) int {
			return cmp.Compare(distance(a.Code, m[1]), distance(b.Code, m[1]))
		}), true
	}
	return Entry{}, false
}

func distance(code, digits string) int {
	a, _ := strconv.Atoi(strings.TrimPrefix(code, "PO-")) // four digits each
	b, _ := strconv.Atoi(digits)
	return max(a-b, b-a)
}
