package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/deployments"
	"github.com/pipeops/pipeops-vm-agent/internal/policy"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/rabbitmq"
)

func calls() string {
	var b strings.Builder
	b.WriteString("\n| call | Go client | CLI | idempotent | Kubernetes permissions | example |\n|---|---|---|---|---|---|\n")
	for _, c := range runnerapi.Calls() {
		call := c.Method + " " + c.Path
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | `%s` |\n", call, code(c.Client...), code(c.Command), c.Repeated,
			list(deployments.Calls()[c.ID]), strings.ReplaceAll(c.Example, "|", `\|`))
	}
	return b.String() + "\n"
}

// queueArguments are those that the schema has for a Runner's queue.
func queueArguments() string {
	var b strings.Builder
	b.WriteString("\n| argument | value |\n|---|---|\n")
	arguments := new(rabbitmq.RunnerQueue("{runner}")).Arguments()
	for _, name := range slices.Sorted(maps.Keys(arguments)) {
		fmt.Fprintf(&b, "| `%s` | `%v` |\n", name, arguments[name])
	}
	return b.String() + "\n"
}

func upkeep() string {
	var b strings.Builder
	b.WriteString("\n| what for | Kubernetes permissions |\n|---|---|\n")
	for _, u := range deployments.Upkeeps() {
		fmt.Fprintf(&b, "| %s | %s |\n", u.For, list(u.Rights))
	}
	return b.String() + "\n"
}

func code(words ...string) string {
	var out []string
	for _, w := range words {
		if w != "" {
			out = append(out, "`"+w+"`")
		}
	}
	return strings.Join(out, ", ")
}

// list names the verbs once for resources in a row that have the same.
func list(rights []deployments.Right) string {
	var out strings.Builder
	verbs := ""
	for _, r := range rights {
		v := strings.Join(r.Verbs, ", ")
		switch {
		case r.Own:
			v = "own: " + v
		case r.Nodes:
			v = "[granted apart](../deployer/nodes.md): " + v
		case r.Users:
			v = "[granted apart](../deployer/kubernetes-api.md): " + v
		case r.Sources:
			v = "[granted apart](../deployer/git.md): " + v
		}
		switch {
		case v == verbs:
			out.WriteString(",")
		case verbs != "":
			out.WriteString("; " + v)
		default:
			out.WriteString(v)
		}
		verbs = v
		out.WriteString(" `" + r.Resource + "`")
	}
	return out.String()
}

func policyCommands() string {
	calls := map[string]runnerapi.Call{}
	for _, c := range runnerapi.Calls() {
		calls[c.ID] = c
	}
	all := policy.Commands()
	var b strings.Builder
	b.WriteString("\n| command | access | call | `pipeops-runner` |\n|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(all)) {
		call, command := "", code(calls[name].Command)
		if c := calls[name]; c.ID != "" {
			call = code(c.Method + " " + c.Path)
		}
		if name == runnerapi.AdoptApp { // likewise
			c := calls["put-app"]
			call, command = code(c.Method+" "+c.Path)+" with `adopt=true`", code(c.Command+" --adopt")
		}
		if name == runnerapi.AdoptNamespace { // a part of another call
			c := calls["put-namespace"]
			call, command = code(c.Method+" "+c.Path)+" with `adopt: true`", code(c.Command+" --adopt")
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", name, all[name], call, command)
	}
	return b.String() + "\n"
}
