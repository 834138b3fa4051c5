//go:build linux

// Command escape enters the cage of a process that renders, and tries to get out. It stands for a
// template that has broken its interpreter. It is not shipped.
//
//	escape free|caged WITNESSES    prints a report; free does not enter the cage
//	escape without landlock,seccomp COMMAND...    runs a command as on a kernel without these
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/render"
	"github.com/pipeops/pipeops-vm-agent/internal/render/cage"
)

// witnesses are what a process could reach without the cage.
type witnesses struct {
	Token    string // a file, as a ServiceAccount's token is
	Folder   string // where it may write
	Victim   string // a file that it may remove
	Port     int    // of 127.0.0.1, where something listens
	Socket   string // unix
	Abstract string // unix, without a file
}

// report is printed in JSON.
type report struct {
	Missing []string          // parts of the cage
	Tries   map[string]string // attempt to the error's name, empty if it succeeded
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) >= 3 && args[0] == "without" {
		return without(strings.Split(args[1], ","), args[2:])
	}
	if len(args) != 2 {
		return fmt.Errorf("unknown arguments %q", args)
	}
	var w witnesses
	if err := json.Unmarshal([]byte(args[1]), &w); err != nil {
		return err
	}
	r := report{Missing: cage.Missing(), Tries: map[string]string{}}
	attempts, err := prepare(w)
	if err != nil {
		return err
	}
	if args[0] == "caged" {
		if err := cage.Enter(render.Memory); err != nil {
			return err
		}
		if !slices.ContainsFunc(r.Missing, func(part string) bool { return strings.HasPrefix(part, "seccomp") }) {
			attempts = append(attempts, calls...)
		}
	}
	for _, a := range attempts {
		r.Tries[a.name] = onAThread(a.try)
	}
	live()
	return json.NewEncoder(os.Stdout).Encode(r)
}

// onAThread makes an attempt on another thread than the one that entered the cage.
func onAThread(try func() error) string {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with it
		result <- try()
	}()
	return outcome(<-result)
}

// live uses what a Go program needs: memory, threads, timers, the collector.
func live() {
	done := make(chan []byte)
	for range 50 {
		go func() {
			time.Sleep(time.Millisecond)
			done <- make([]byte, 64<<10)
		}()
	}
	for range 50 {
		<-done
	}
	runtime.GC()
}
