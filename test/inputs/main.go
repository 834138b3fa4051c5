package inputs

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
)

// noted are the lines of the go command's log of inputs, of all that was opened through this
// package.
var noted struct {
	sync.Mutex
	lines []string
	known map[string]bool
}

func note(how, path string) {
	noted.Lock()
	defer noted.Unlock()
	line := how + " " + path
	if noted.known == nil {
		noted.known = map[string]bool{}
	}
	if !noted.known[line] {
		noted.known[line] = true
		noted.lines = append(noted.lines, line)
	}
}

// Main runs the tests of a package whose TestMain opens inputs, or builds programs, before tests
// run. The go command's log begins with the first test, and would not have these.
func Main(m interface{ Run() int }) int {
	code := m.Run()
	if err := amend(); err != nil {
		fmt.Fprintln(os.Stderr, "note the tests' inputs:", err)
		return 1
	}
	return code
}

// amend adds to the log what is missing in it.
func amend() error {
	log := flag.Lookup("test.testlogfile")
	if log == nil || log.Value.String() == "" {
		return nil
	}
	file, err := os.OpenFile(log.Value.String(), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	noted.Lock()
	defer noted.Unlock()
	for _, line := range noted.lines {
		if _, err := fmt.Fprintln(file, line); err != nil {
			return errors.Join(err, file.Close())
		}
	}
	return file.Close()
}
