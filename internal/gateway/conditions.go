package gateway

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Conditions are what a route demands of a request beside its host and path. The zero value demands
// nothing.
type Conditions struct {
	Method  string           // empty for all
	Headers []ValueCondition // with names in their canonical form
	Query   []ValueCondition
}

// ValueCondition demands a value of a header, or of a parameter of the query.
type ValueCondition struct {
	Name, Value string
	// Pattern matches the whole value; nil if the value is to be equal.
	Pattern *regexp.Regexp
}

// String returns the conditions for people. Different conditions have different texts.
func (c Conditions) String() string {
	var all []string
	if c.Method != "" {
		all = append(all, c.Method)
	}
	for _, h := range c.Headers {
		all = append(all, "header "+h.text())
	}
	for _, q := range c.Query {
		all = append(all, "query "+q.text())
	}
	return strings.Join(all, ", ")
}

func (v ValueCondition) text() string {
	if v.Pattern != nil {
		return v.Name + " matches " + strconv.Quote(v.Value)
	}
	return v.Name + "=" + strconv.Quote(v.Value)
}

func (v ValueCondition) met(value string) bool {
	if v.Pattern != nil {
		return v.Pattern.MatchString(value)
	}
	return value == v.Value
}

// none reports whether all requests meet the conditions.
func (c *Conditions) none() bool { return c.Method == "" && len(c.Headers) == 0 && len(c.Query) == 0 }

// expressions counts the regular expressions.
func (c *Conditions) expressions() (n int) {
	for _, of := range [][]ValueCondition{c.Headers, c.Query} {
		for _, v := range of {
			if v.Pattern != nil {
				n++
			}
		}
	}
	return n
}

// compareConditions puts those first that the Gateway API says: with a method, then with more
// headers, then with more parameters.
func compareConditions(a, b *Conditions) int {
	if d := rankMethod(a) - rankMethod(b); d != 0 {
		return d
	}
	if d := len(b.Headers) - len(a.Headers); d != 0 {
		return d
	}
	return len(b.Query) - len(a.Query)
}

func rankMethod(c *Conditions) int {
	if c.Method != "" {
		return 0
	}
	return 1
}

// asked is what conditions look at in a request.
type asked struct {
	method   string
	header   http.Header
	rawQuery string
	query    url.Values // nil until it is wanted
}

func askedBy(r *http.Request) asked {
	return asked{method: r.Method, header: r.Header, rawQuery: r.URL.RawQuery}
}

// meets reports whether the request meets the conditions. A header that is repeated counts as its
// values with commas between (RFC 9110, section 5.3). Of a repeated parameter the first counts, as
// the Gateway API recommends.
func (a *asked) meets(c *Conditions) bool {
	if c.Method != "" && c.Method != a.method {
		return false
	}
	for _, h := range c.Headers {
		values := a.header[h.Name]
		if len(values) == 0 || !h.met(strings.Join(values, ",")) {
			return false
		}
	}
	if len(c.Query) > 0 && a.query == nil {
		a.query, _ = url.ParseQuery(a.rawQuery) // what can be read of it
	}
	return !slices.ContainsFunc(c.Query, func(q ValueCondition) bool {
		values := a.query[q.Name]
		return len(values) == 0 || !q.met(values[0])
	})
}
