package ledger

import "fmt"

// Size is what a process uses while nothing happens.
type Size struct {
	Process string `json:"process"`
	PID     int    `json:"pid"`
	// Memory is what Go has in use right after a collection, heap and stacks, in bytes.
	Memory     int64 `json:"memory"`
	Goroutines int64 `json:"goroutines"`
	Files      int   `json:"files"`
	// Resident is in bytes. It bounds nothing: what the collector has not given back yet, and what
	// the agent gives back of its program when nothing has changed for a while, is as much as all
	// the rest.
	Resident int64 `json:"resident"`
}

// By how much a process may have grown: by the caches of what there is more of in the cluster and
// the database, and by some peers that are connected now and were not then.
const (
	moreMemory     = 8 << 20
	moreShare      = 4 // a quarter
	moreGoroutines = 25
	moreFiles      = 16
)

// Growth compares the same processes, before and after.
func Growth(before, after []Size) (problems []string) {
	for _, was := range before {
		for _, is := range after {
			if was.Process != is.Process {
				continue
			}
			if most := was.Memory + max(was.Memory/moreShare, moreMemory); is.Memory > most {
				problems = append(problems, fmt.Sprintf("%s has grown from %d MiB in use to %d MiB", is.Process, was.Memory>>20, is.Memory>>20))
			}
			if is.Goroutines > was.Goroutines+max(was.Goroutines/moreShare, moreGoroutines) {
				problems = append(problems, fmt.Sprintf("%s has grown from %d goroutines to %d", is.Process, was.Goroutines, is.Goroutines))
			}
			if is.Files > was.Files+moreFiles {
				problems = append(problems, fmt.Sprintf("%s has grown from %d open files to %d", is.Process, was.Files, is.Files))
			}
		}
	}
	return problems
}
