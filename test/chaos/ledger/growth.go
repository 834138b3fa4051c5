package ledger

import "fmt"

// Size is what a process takes while nothing happens.
type Size struct {
	Process string `json:"process"`
	PID     int    `json:"pid"`
	// Resident is in bytes.
	Resident int64 `json:"resident"`
	Threads  int64 `json:"threads"`
	Files    int   `json:"files"`
}

// By how much a process may have grown. Memory is what the garbage collector has
// not given back, which varies by that much between two looks at the same process;
// files and threads stand for goroutines, of which one that waits for a peer has a
// file.
const (
	moreResident = 24 << 20
	moreShare    = 4 // a quarter
	moreThreads  = 10
	moreFiles    = 16
)

// Growth compares the same processes, before and after.
func Growth(before, after []Size) (problems []string) {
	for _, was := range before {
		for _, is := range after {
			if was.Process != is.Process {
				continue
			}
			if most := was.Resident + max(was.Resident/moreShare, moreResident); is.Resident > most {
				problems = append(problems, fmt.Sprintf("%s has grown from %d MiB to %d MiB", is.Process, was.Resident>>20, is.Resident>>20))
			}
			if is.Threads > was.Threads+moreThreads {
				problems = append(problems, fmt.Sprintf("%s has grown from %d threads to %d", is.Process, was.Threads, is.Threads))
			}
			if is.Files > was.Files+moreFiles {
				problems = append(problems, fmt.Sprintf("%s has grown from %d open files to %d", is.Process, was.Files, is.Files))
			}
		}
	}
	return problems
}
