package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// heartbeat is how often a long step reports its progress.
const heartbeat = 10 * time.Second

// compile fills Go's build cache. The users of the programs link them.
type compile struct {
	dir      string // of another module than the repository's; empty for that
	flags    []string
	cgo      bool // as the race detector wants it
	patterns []string
}

func (c compile) run(ctx context.Context, out io.Writer) error {
	total, err := c.packages(ctx, out)
	if err != nil {
		return err
	}
	cmd := command(ctx, c.args("-export", "-v", "-f", "")...)
	cmd.Env, cmd.Dir = c.env(), c.dir
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	lines := make(chan string)
	go func() {
		defer close(lines)
		scanner := bufio.NewScanner(stderr)
		for scanner.Scan() {
			lines <- scanner.Text()
		}
	}()
	said := follow(lines, total, out)
	if err := cmd.Wait(); err != nil {
		return errors.Join(err, errors.New(said))
	}
	return nil
}

// follow counts the packages that go names while it compiles them, and returns its other output:
// errors.
func follow(lines <-chan string, total int, out io.Writer) string {
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	start := time.Now()
	compiled, other := 0, []string(nil)
	for {
		select {
		case line, ok := <-lines:
			switch {
			case !ok:
				return strings.Join(other, "\n")
			case isPackage(line):
				compiled++
			default:
				other = append(other, line)
			}
		case <-tick.C:
			fmt.Fprintf(out, "   %d of %d packages compiled, %s\n", compiled, total, time.Since(start).Round(time.Second))
		}
	}
}

// isPackage distinguishes an import path, which may be a test's, from a message.
func isPackage(line string) bool {
	path, variant, _ := strings.Cut(line, " ")
	return path != "" && !strings.HasPrefix(path, "#") && !strings.ContainsAny(path, ":") &&
		(variant == "" || strings.HasPrefix(variant, "["))
}

// packages downloads missing modules, which go reports, and counts.
func (c compile) packages(ctx context.Context, out io.Writer) (int, error) {
	cmd := command(ctx, c.args()...)
	cmd.Env, cmd.Dir = c.env(), c.dir
	cmd.Stderr = out
	list, err := cmd.Output()
	return strings.Count(string(list), "\n"), err
}

func (c compile) args(more ...string) []string {
	args := append([]string{"list", "-deps", "-trimpath"}, c.flags...)
	return append(append(args, more...), c.patterns...)
}

func (c compile) env() []string {
	if c.cgo {
		return append(os.Environ(), "CGO_ENABLED=1")
	}
	return append(os.Environ(), "CGO_ENABLED=0")
}
