package parts

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

const heartbeat = 15 * time.Second

// progress reports long steps. Steps with nothing to do are silent.
type progress struct {
	out         io.Writer
	terminal    bool
	step, total int
}

func newProgress(out io.Writer) *progress {
	file, ok := out.(*os.File)
	return &progress{out: out, terminal: ok && term.IsTerminal(int(file.Fd()))}
}

// run reports that work is in progress, for how long, and its end. A terminal shows one line that
// counts; a log gets a line at intervals.
func (p *progress) run(title string, expect time.Duration, work func() error) error {
	prefix := fmt.Sprintf("[%d/%d] %s", p.step, p.total, title)
	fmt.Fprintf(p.out, "%s: building (about %s the first time)", prefix, expect)
	every := heartbeat
	if p.terminal {
		every = time.Second
	} else {
		fmt.Fprintln(p.out)
	}
	start := time.Now()
	done := make(chan error, 1)
	go func() { done <- work() }()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			p.end(prefix, start, err)
			return err
		case <-tick.C:
			p.tell(prefix, fmt.Sprintf("building, %s of about %s", time.Since(start).Round(time.Second), expect))
		}
	}
}

func (p *progress) end(prefix string, start time.Time, err error) {
	outcome := "built in "
	if err != nil {
		outcome = "failed after "
	}
	p.tell(prefix, outcome+time.Since(start).Round(100*time.Millisecond).String())
	if p.terminal {
		fmt.Fprintln(p.out)
	}
}

func (p *progress) tell(prefix, text string) {
	if p.terminal {
		fmt.Fprintf(p.out, "\r\033[K%s: %s", prefix, text)
		return
	}
	fmt.Fprintf(p.out, "%s: %s\n", prefix, text)
}
