package tunnel

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestChooseEndpoints_FirstTwo(t *testing.T) {
	at := func(addresses ...string) (all []Endpoint) {
		for _, a := range addresses {
			all = append(all, Endpoint{Address: a})
		}
		return all
	}
	for _, test := range []struct {
		told []Endpoint
		want string
		errs int
	}{
		{nil, "", 0},
		{at("a:1"), "a:1", 0},
		{at("a:1", "b:1", "c:1", "d:1", "e:1"), "a:1 b:1", 0},
		{at("a:1", "a:1", "A:1", "b:1"), "a:1 b:1", 0},
		{at("a:1", "a:2"), "a:1 a:2", 0},
		{at("[2001:db8::1]:7000", "10.0.0.1:7000"), "[2001:db8::1]:7000 10.0.0.1:7000", 0},
		{at("", "a", "a:", ":1", "a:0", "a:65536", "a:http", "a b:1", "a/b:1", "user@a:1", "a\nb:1", "a:1"), "a:1", 11},
		{[]Endpoint{{"a:1", "no name"}, {"a:1", "name"}}, "a:1", 1},
		{at(slices.Repeat([]string{"?"}, 1000)...), "", maxTold},
	} {
		chosen, err := choose(test.told)
		var got []string
		for _, e := range chosen {
			got = append(got, e.Address)
			assert.NotEmpty(t, e.ServerName, "%s has no server name", e.Address)
		}
		assert.Equal(t, test.want, strings.Join(got, " "), "%.10q: chose %q", test.told, got)
		lines := 0
		if err != nil {
			lines = len(strings.Split(err.Error(), "\n"))
		}
		assert.Equal(t, test.errs, lines, "%.10q: %d errors, want %d: %v", test.told, lines, test.errs, err)
	}
}

func FuzzEndpoint(f *testing.F) {
	f.Add("cp.example.com:7000", "cp.example.com")
	f.Add("[fe80::1%eth0]:7000", "")
	f.Add("a:1\nHost: b", "\x00")
	f.Fuzz(func(t *testing.T, address, name string) {
		e := Endpoint{Address: address, ServerName: name}
		if e.Check() != nil {
			return
		}
		host, _, err := net.SplitHostPort(address)
		if err != nil || host == "" || strings.ContainsAny(fmt.Sprint(host, name), " \t\r\n\x00/@") {
			t.Errorf("%q, %q is let through", address, name)
		}
		if n := e.normal(); n.Check() != nil || n != n.normal() {
			t.Errorf("%q, %q: its normal form is %+v", address, name, n)
		}
	})
}
