package policy_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/pipeops/pipeops-vm-agent/internal/egress"
	"github.com/pipeops/pipeops-vm-agent/internal/policy"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// FuzzParse: whatever is written, it is understood or refused with a fix, and
// what is understood decides without a panic and never lets a wildcard allow
// what has to be named.
func FuzzParse(f *testing.F) {
	f.Add([]byte(rules), "ci", "registry.example.com/shop/web:1")
	f.Add([]byte("paused: true"), "", "")
	f.Add([]byte("rules: [{name: a, images: [docker.io], maxResources: {cpu: 1, memory: 1e3}}]"), "x", "nginx")
	f.Add([]byte("fetchHosts: [git.example.com, '*.charts.example.com']\nrules: []"), "x", "git.example.com")
	f.Add([]byte("fetchHosts: []"), "x", "@")
	f.Add([]byte("fetchHosts: ['*[', 'a:1']"), "x", "git.example.com:443")
	f.Add([]byte("a: &a [x]\nrules: *a"), "x", "@")
	f.Fuzz(func(t *testing.T, text []byte, runner, image string) {
		doc, err := policy.Parse(text)
		if err != nil {
			e := &problem.Error{}
			if !errors.As(err, &e) || e.Fix == "" {
				t.Fatalf("no problem with a fix: %v", err)
			}
			return
		}
		p := policy.New("x")
		p.Set(doc, nil)
		_, _ = doc.Summary(), egress.Guard{Hosts: p.FetchHosts}.CheckHost(image)
		i := intent(runner, "put-app", "shop")
		i.App = &runnerapi.AppSpec{Image: image}
		_ = p.Decide(i)
		i = intent(runner, "exec-app", "shop")
		if p.Decide(i) != nil {
			return
		}
		for _, r := range doc.Rules {
			if slices.Contains(r.Commands, "exec-app") {
				return
			}
		}
		t.Fatal("exec is allowed, and no rule names it")
	})
}
