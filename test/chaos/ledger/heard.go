package ledger

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// Heard compares the events that a Runner received about one agent, in order of arrival, with the
// sequence number that the control plane has reached. Each event and the one before it must have
// arrived, as the same event each time, and for the first time in order.
func Heard(events []announce.Event, last uint64) (problems []string) {
	ids := map[uint64]string{}
	newest := uint64(0)
	for _, e := range events {
		id, known := ids[e.Sequence]
		switch {
		case known && id != e.ID:
			problems = append(problems, fmt.Sprintf("two events have sequence %d: %s and %s", e.Sequence, id, e.ID))
		case !known && e.Sequence < newest:
			problems = append(problems, fmt.Sprintf("event %d (%s) was first heard after event %d", e.Sequence, e.Type, newest))
		}
		ids[e.Sequence] = e.ID
		newest = max(newest, e.Sequence)
	}
	before := map[uint64]bool{last: last > newest}
	for _, e := range events {
		before[e.Previous] = e.Previous > 0
	}
	for n, there := range before {
		if _, heard := ids[n]; there && !heard {
			problems = append(problems, fmt.Sprintf("event %d of %d was never heard", n, last))
		}
	}
	if newest > last {
		problems = append(problems, fmt.Sprintf("event %d was heard; the control plane has announced %d", newest, last))
	}
	return problems
}

// Watched compares what the watcher of a directory was told with the events that another Runner
// received: of Apps, hosts and alerts each event, once and in order.
func Watched(changes []announce.Change, events []announce.Event) (problems []string) {
	told, newest := map[uint64]bool{}, uint64(0)
	for _, c := range changes {
		if c.Type.IsAgent() {
			continue
		}
		if c.Sequence <= newest {
			problems = append(problems, fmt.Sprintf("event %d (%s) was reported after event %d", c.Sequence, c.Type, newest))
		}
		told[c.Sequence], newest = true, max(newest, c.Sequence)
	}
	for i := range events {
		e := &events[i]
		if !e.Type.IsAgent() && !told[e.Sequence] {
			told[e.Sequence] = true // reported once
			problems = append(problems, fmt.Sprintf("event %d (%s) was not reported", e.Sequence, e.Type))
		}
	}
	return problems
}

// Told compares the last event about each App with the App: a Runner that only receives events
// knows the state of all of them. healthy are the healthy Apps, by name, with their generation.
func Told(events []announce.Event, healthy map[string]int64) (problems []string) {
	type news struct {
		kind       announce.Type
		generation int64
		sequence   uint64
	}
	last := map[string]news{}
	for i := range events {
		e := &events[i]
		if !e.Type.IsApp() {
			continue
		}
		app, err := e.App()
		if err != nil {
			problems = append(problems, err.Error())
			continue
		}
		if e.Sequence > last[app.Name].sequence {
			last[app.Name] = news{e.Type, app.Generation, e.Sequence}
		}
	}
	for name, generation := range healthy {
		if got := last[name]; got.kind != announce.AppHealthy || got.generation != generation {
			problems = append(problems, fmt.Sprintf("App %s is healthy at generation %d; last heard was %s of generation %d", name, generation, got.kind, got.generation))
		}
	}
	for name, got := range last {
		if _, there := healthy[name]; !there && got.kind != announce.AppRemoved {
			problems = append(problems, fmt.Sprintf("App %s is not there; last heard was %s of generation %d", name, got.kind, got.generation))
		}
	}
	slices.Sort(problems)
	return problems
}

// Known compares a Runner's directory with the control plane's list. An agent's last contact and
// the use of its cluster change all the time, are not announced, and may differ.
func Known(directory, list []announce.Agent) (problems []string) {
	for i := range directory {
		at := slices.IndexFunc(list, func(a announce.Agent) bool { return a.ID == directory[i].ID })
		if at < 0 {
			problems = append(problems, fmt.Sprintf("the Runner's directory has agent %s; the control plane has not", directory[i].Name))
			continue
		}
		got, want := directory[i], list[at]
		got.LastSeen = want.LastSeen
		got.Capacity.RunningPods = want.Capacity.RunningPods
		got.Capacity.UsedCPUMillis, got.Capacity.UsedMemoryBytes = want.Capacity.UsedCPUMillis, want.Capacity.UsedMemoryBytes
		if !reflect.DeepEqual(got, want) {
			problems = append(problems, fmt.Sprintf("agent %s: the Runner's directory has %+v; the control plane %+v", got.Name, got, want))
		}
	}
	for i := range list {
		if !slices.ContainsFunc(directory, func(a announce.Agent) bool { return a.ID == list[i].ID }) {
			problems = append(problems, fmt.Sprintf("the control plane has agent %s; the Runner's directory has not", list[i].Name))
		}
	}
	return problems
}
