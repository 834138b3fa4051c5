package timerslack

import (
	"encoding/json"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// envProgram has the test's program be one that calls Raise, and tell what it then is.
const envProgram = "PIPEOPS_TEST_TIMER_SLACK"

type told struct {
	PID, Slack int
	Args       []string
	Marked     bool // as one that was begun anew
}

func TestMain(m *testing.M) {
	if os.Getenv(envProgram) == "" {
		os.Exit(m.Run())
	}
	Raise()
	slack, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil {
		panic(err)
	}
	_, marked := os.LookupEnv(envRaised)
	if err := json.NewEncoder(os.Stdout).Encode(told{os.Getpid(), slack, os.Args, marked}); err != nil {
		panic(err)
	}
}

func TestTheSameProcessGoesOnWithMoreSlack(t *testing.T) {
	got, pid := program(t, "serve", "--flag=a b")
	assert.Equal(t, told{PID: pid, Slack: int(Wanted.Nanoseconds()), Args: []string{os.Args[0], "serve", "--flag=a b"}}, got)
}

// TestASystemThatDoesNotKeepItIsAskedOnce has a program that was begun anew already find the setting as before.
func TestASystemThatDoesNotKeepItIsAskedOnce(t *testing.T) {
	before, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	require.NoError(t, err)
	t.Setenv(envRaised, "yes")
	got, pid := program(t)
	assert.Equal(t, told{PID: pid, Slack: before, Args: []string{os.Args[0]}}, got)
}

// program runs the test's program as that of the test, and answers what it told, and its process' ID.
func program(t *testing.T, args ...string) (got told, pid int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), envProgram+"=yes")
	out, err := cmd.Output()
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(out, &got))
	return got, cmd.Process.Pid
}
