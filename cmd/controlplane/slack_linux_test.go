package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/pipeops/pipeops-vm-agent/internal/timerslack"
)

// TestServeRunsWithItsTimerSlack has the program itself be looked at: it executes itself for that, and is the same process.
func TestServeRunsWithItsTimerSlack(t *testing.T) {
	p := startServe(t, t.TempDir())
	defer p.stop(t)
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/timerslack_ns", p.cmd.Process.Pid))
	if errors.Is(err, fs.ErrPermission) {
		t.Skip("to see it of another process takes CAP_SYS_NICE (proc(5))")
	}
	if err != nil {
		t.Fatal(err)
	}
	if slack, err := strconv.Atoi(strings.TrimSpace(string(text))); err != nil || slack < int(timerslack.Wanted) {
		t.Errorf("its slack is %s ns (%v)", text, err)
	}
}
