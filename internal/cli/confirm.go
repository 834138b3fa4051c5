package cli

import (
	"bufio"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// Terminal reports whether a person can answer a question at a command's standard input.
func Terminal(in io.Reader) bool {
	f, ok := in.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Confirm asks a question, and reports whether the answer is yes.
func Confirm(in io.Reader, out io.Writer, question string) bool {
	Ask(out, "%s [y/N] ", question)
	answer, _ := bufio.NewReader(in).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return true
	}
	return false
}
