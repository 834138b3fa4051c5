package gateway

import (
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func requestFor(t testing.TB, method, target string, header map[string]string) asked {
	t.Helper()
	r := httptest.NewRequest(method, target, http.NoBody)
	for name, value := range header {
		r.Header.Add(name, value)
	}
	return askedBy(r)
}

func equals(name, value string) ValueCondition { return ValueCondition{Name: name, Value: value} }

func matches(name, value string) ValueCondition {
	return ValueCondition{Name: name, Value: value, Pattern: regexp.MustCompile("^(?:" + value + ")$")}
}

// TestTable_Precedence has the rules in the order that the comment of HTTPRouteRule.Matches in the
// Gateway API gives. Each route serves the request of the test, and comes before all that follow.
func TestTable_Precedence(t *testing.T) {
	day := time.Unix(86400, 0)
	routes := []Route{
		{Path: "/shop/cart", PathType: exact},
		{Path: "/shop/c[a-z]+", Pattern: regexp.MustCompile("^(?:/shop/c[a-z]+)$")},
		{Path: "/s.*", Pattern: regexp.MustCompile("^(?:/s.*)$"), Conditions: Conditions{Method: "GET"}},
		{Path: "/s.*", Pattern: regexp.MustCompile("^(?:/s.*)$")},
		{Path: "/shop/cart", PathType: "PathPrefix"},
		{Path: "/shop", Conditions: Conditions{Method: "GET", Headers: []ValueCondition{equals("X-A", "1"), equals("X-B", "2")}}},
		{Path: "/shop", Conditions: Conditions{Method: "GET", Headers: []ValueCondition{equals("X-A", "1")}, Query: []ValueCondition{equals("q", "1"), equals("p", "")}}},
		{Path: "/shop", Conditions: Conditions{Method: "GET", Headers: []ValueCondition{equals("X-A", "1")}, Query: []ValueCondition{equals("q", "1")}}},
		{Path: "/shop", Conditions: Conditions{Method: "GET", Headers: []ValueCondition{equals("X-A", "1")}}},
		{Path: "/shop", Conditions: Conditions{Method: "GET"}},
		{Path: "/shop", Conditions: Conditions{Headers: []ValueCondition{matches("X-A", "[0-9]"), equals("X-B", "2")}}},
		{Path: "/shop", Conditions: Conditions{Headers: []ValueCondition{equals("X-A", "1")}}},
		{Path: "/shop", Conditions: Conditions{Query: []ValueCondition{matches("q", "1+"), equals("p", "")}}},
		{Path: "/shop", Conditions: Conditions{Query: []ValueCondition{equals("q", "1")}}},
		{Path: "/shop", Created: time.Unix(1, 0), Name: "z/z", Order: 9},
		{Path: "/shop", Created: day, Name: "a/a", Order: 0},
		{Path: "/shop", Created: day, Name: "a/b", Order: 0},
		{Path: "/shop", Created: day, Name: "a/b", Order: 1},
		{Path: "/"},
	}
	for i := range routes {
		routes[i].Host, routes[i].Addresses = "www.example.org", []string{string(rune('a' + i))}
	}
	by := requestFor(t, "GET", "/shop/cart?q=1&p=&q=2", map[string]string{"X-A": "1", "X-B": "2"})
	for first := range routes {
		left := routes[first:]
		for range 5 {
			shuffled := append([]Route(nil), left...)
			rand.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
			found := newTable(shuffled, nil).find("www.example.org", "/shop/cart", &by)
			require.NotNil(t, found)
			require.Equal(t, left[0].Addresses, found.Addresses, "%d: %+v", first, left[0])
		}
	}
}

func TestTable_Conditions(t *testing.T) {
	for name, c := range map[string]struct {
		Conditions
		method, target string
		header         map[string]string
		met            bool
	}{
		"none":                {Conditions{}, "GET", "/", nil, true},
		"method":              {Conditions{Method: "POST"}, "POST", "/", nil, true},
		"another method":      {Conditions{Method: "POST"}, "GET", "/", nil, false},
		"header":              {Conditions{Headers: []ValueCondition{equals("X-Env", "a")}}, "GET", "/", map[string]string{"x-env": "a"}, true},
		"another value":       {Conditions{Headers: []ValueCondition{equals("X-Env", "a")}}, "GET", "/", map[string]string{"x-env": "A"}, false},
		"no header":           {Conditions{Headers: []ValueCondition{equals("X-Env", "")}}, "GET", "/", nil, false},
		"empty header":        {Conditions{Headers: []ValueCondition{equals("X-Env", "")}}, "GET", "/", map[string]string{"x-env": ""}, true},
		"one header of two":   {Conditions{Headers: []ValueCondition{equals("A", "1"), equals("B", "2")}}, "GET", "/", map[string]string{"A": "1"}, false},
		"expression":          {Conditions{Headers: []ValueCondition{matches("X-Env", "a|b+")}}, "GET", "/", map[string]string{"x-env": "bb"}, true},
		"part of the value":   {Conditions{Headers: []ValueCondition{matches("X-Env", "a|b+")}}, "GET", "/", map[string]string{"x-env": "xbb"}, false},
		"query":               {Conditions{Query: []ValueCondition{equals("q", "a b")}}, "GET", "/?q=a+b", nil, true},
		"query in capitals":   {Conditions{Query: []ValueCondition{equals("q", "a")}}, "GET", "/?Q=a", nil, false},
		"first of the values": {Conditions{Query: []ValueCondition{equals("q", "a")}}, "GET", "/?q=b&q=a", nil, false},
		"no query":            {Conditions{Query: []ValueCondition{equals("q", "")}}, "GET", "/", nil, false},
	} {
		table := newTable([]Route{{Host: "www.example.org", Path: "/", Conditions: c.Conditions}}, nil)
		by := requestFor(t, c.method, c.target, c.header)
		assert.Equal(t, c.met, table.find("www.example.org", "/", &by) != nil, name)
	}
	by := asked{header: http.Header{"X-Env": {"a", "b"}}}
	assert.True(t, by.meets(&Conditions{Headers: []ValueCondition{equals("X-Env", "a,b")}}), "a repeated header")
}

// Of several routes at one path, the path alone decides whether a request is ambiguous: the rest of
// the request is the same in each reading.
func TestTable_AmbiguousWithConditions(t *testing.T) {
	canary := Conditions{Headers: []ValueCondition{equals("X-Env", "canary")}}
	table := newTable([]Route{
		{Host: "www.example.org", Path: "/"}, {Host: "www.example.org", Path: "/", Conditions: canary},
		{Host: "www.example.org", Path: "/admin", Conditions: Conditions{Method: "POST"}},
		{Host: "all.example.org", Path: "/"}, {Host: "all.example.org", Path: "/", Conditions: canary},
		{Host: "some.example.org", Path: "/", Conditions: canary}, {Host: "*.example.org", Path: "/wild"},
		{Host: "re.example.org", Path: "/a.*", Pattern: regexp.MustCompile("^(?:/a.*)$")}, {Host: "re.example.org", Path: "/"},
	}, nil)
	for _, c := range []struct {
		host, method, decoded, raw string
		header                     map[string]string
		ambiguous                  bool
	}{
		{"www.example.org", "POST", "/x/../admin", "/x/../admin", nil, true},
		{"www.example.org", "GET", "/x/../admin", "/x/../admin", nil, false}, // only POST has a route of its own
		{"www.example.org", "GET", "/x/../y", "/x/../y", map[string]string{"X-Env": "canary"}, false},
		{"all.example.org", "GET", "/x/../y", "/x/%2e%2e/y", nil, false},
		{"some.example.org", "GET", "/x/../wild", "/x/../wild", nil, true}, // the wildcard's route has no condition
		{"re.example.org", "GET", "/x/../a", "/x/../a", nil, true},
		{"re.example.org", "GET", "/x/../b", "/x/../b", nil, false},
	} {
		by := requestFor(t, c.method, "/", c.header)
		found := table.find(c.host, c.decoded, &by)
		assert.Equal(t, c.ambiguous, table.ambiguous(c.host, c.raw, found, &by), "%s %s", c.method, c.raw)
	}
}

// A request by a host and a path alone costs no more memory than it did without conditions.
func TestTable_FindAllocatesNothing(t *testing.T) {
	table := newTable([]Route{
		{Host: "www.example.org", Path: "/"}, {Host: "www.example.org", Path: "/api"}, {Host: "*.example.org", Path: "/", PathType: exact},
	}, nil)
	r := httptest.NewRequest(http.MethodGet, "/api/x?q=1", http.NoBody)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		by := askedBy(r)
		if table.find("www.example.org", r.URL.Path, &by) == nil {
			t.Error("not found")
		}
	}))
}

func BenchmarkTable_Find(b *testing.B) {
	table := newTable([]Route{
		{Host: "www.example.org", Path: "/"}, {Host: "www.example.org", Path: "/api"}, {Host: "www.example.org", Path: "/api/v2"},
	}, nil)
	r := httptest.NewRequest(http.MethodGet, "/x", http.NoBody)
	b.ReportAllocs()
	for b.Loop() {
		by := askedBy(r)
		table.find("www.example.org", r.URL.Path, &by)
	}
}
