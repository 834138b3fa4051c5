package e2e

import (
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/logbook"
)

// terminal is a pseudo-terminal: who types has keyboard, and the program screen. It says
// nothing by itself of what is typed.
func terminal(t *testing.T) (keyboard, screen *os.File) {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = keyboard.Close() })
	n, err := unix.IoctlGetInt(int(keyboard.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetPointerInt(int(keyboard.Fd()), unix.TIOCSPTLCK, 0))
	screen, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = screen.Close() })
	state, err := unix.IoctlGetTermios(int(screen.Fd()), unix.TCGETS)
	require.NoError(t, err)
	state.Lflag &^= unix.ECHO
	require.NoError(t, unix.IoctlSetTermios(int(screen.Fd()), unix.TCSETS, state))
	return keyboard, screen
}

// onTerminal types to a cat on a terminal in a pod. That terminal says what is typed, and cat
// says it again; ^D ends it.
func (s *shell) onTerminal(t *testing.T, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), docsPatience)
	defer cancel()
	keyboard, screen := terminal(t)
	cmd := s.command(ctx, text)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = screen, screen, screen
	require.NoError(t, cmd.Start())
	said := &logbook.Book{}
	go func() { _, _ = io.Copy(said, keyboard) }() // until the terminal is closed
	holds := func(what string, condition func() bool) {
		require.NoError(t, harness.Eventually(ctx, what, func(context.Context) error {
			if !condition() {
				return errors.New(said.String())
			}
			return nil
		}))
	}
	holds("the terminal is raw", func() bool {
		state, err := unix.IoctlGetTermios(int(screen.Fd()), unix.TCGETS)
		return err == nil && state.Lflag&unix.ICANON == 0
	})
	_, err := keyboard.WriteString("ping\r")
	require.NoError(t, err)
	holds("both have said it", func() bool { return strings.Count(said.String(), "ping\r\n") == 2 })
	_, err = keyboard.WriteString("\x04")
	require.NoError(t, err)
	assert.NoError(t, cmd.Wait())
}
