package render

import (
	"bytes"
	"cmp"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/memory"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// Argument is the first argument of a program that runs as a child: see Child.
const Argument = "render"

// Limits of a child.
const (
	// Memory is what a child takes at most, in bytes: its heap, and what the runtime and the
	// program have beside it. The caller of Run reserves it; see Process.Reserved.
	Memory = heap + 20<<20
	// heap bounds its heap: one arena of Go's.
	heap = 64 << 20
	// soft is its GOMEMLIMIT: it collects its garbage before it reaches its end.
	soft = heap * 3 / 4
	// growth is what may be mapped beside what the process begins with. Go maps its heap in arenas,
	// of which it has one from the start: with less than that more there is room for stacks and the
	// collector's notes, and never for a second arena.
	growth = heap * 3 / 4
	// Patience is how long it may take.
	Patience = 30 * time.Second
	// maxAnswer is more than the largest encoded Result, with all questions.
	maxAnswer = 24 << 20
)

// Process carries out jobs in a separate process.
type Process struct {
	// Command is a program that calls Child, with Argument; empty for this program.
	Command []string
	// Patience is how long each job may take; zero for the constant of that name.
	Patience time.Duration
	// Read, if set, is called with a Release's chart before its templates are executed.
	Read func(c Identity)
	// Lookup answers the lookups of a Release's templates; nil for an empty cluster.
	Lookup Lookup
	// Reserved is set if the caller has reserved Memory for the child (internal/memory). Run
	// reserves it otherwise.
	Reserved bool
}

// Lookup answers what a template asks the cluster: an object, or without a name a list, in JSON;
// nil if it does not exist. The Runner sees its errors.
type Lookup func(ctx context.Context, q Question) ([]byte, error)

// Identity identifies a chart by what was read of its archive.
type Identity struct {
	Name, Version string
	Digest        string // ContentDigest of the archive
}

// Question names an object, or all objects of a kind.
type Question struct{ APIVersion, Kind, Namespace, Name string }

// message is what a child sends: the chart that it read, its position, its questions, and finally
// the Result. The Result's texts are sent before it, one by one: a message is in memory twice while
// it is written, and memory is scarce.
type message struct {
	Chart  *Identity
	At     string
	Ask    *Question
	Text   *Text // of Result.Texts
	CRD    *Text // of Result.CRDs
	Done   bool
	Result Result // without Texts and CRDs
}

// reply is what a child receives: first the Job, then an answer for each question.
type reply struct {
	Job     *Job
	Object  []byte
	Refused string
}

// Command returns the command that runs this program as a child.
func Command() ([]string, error) {
	self, err := os.Executable()
	return []string{self, Argument}, err
}

// Run lets a child carry out the job, when there is memory for it. An error that the files cause is
// a *problem.Error. If a limit was exceeded, it names the template that was being rendered.
func (p Process) Run(ctx context.Context, j Job) (Result, error) {
	if len(p.Command) == 0 {
		var err error
		if p.Command, err = Command(); err != nil {
			return Result{}, fmt.Errorf("find the agent's own program: %w", err)
		}
	}
	p.Patience = cmp.Or(p.Patience, Patience)
	if !p.Reserved {
		hold, err := memory.Acquire(ctx, "", "rendering", Memory)
		if err != nil {
			return Result{}, err
		}
		defer hold.Release()
	}
	defer memory.Beside(Memory)()
	limited, cancel := context.WithTimeout(ctx, p.Patience)
	defer cancel()
	r, err := p.run(limited, j)
	if err != nil && ctx.Err() != nil { // the caller's time is over
		return Result{}, ctx.Err()
	}
	return r, err
}

func (p Process) run(ctx context.Context, j Job) (Result, error) {
	cmd := exec.CommandContext(ctx, p.Command[0], p.Command[1:]...)
	// The local time zone would be a file, which the child cannot open.
	cmd.Env = []string{fmt.Sprintf("GOMEMLIMIT=%d", soft), "GOMAXPROCS=1", "HOME=/nonexistent", "TZ=UTC"}
	errs := &clipped{left: maxMessage}
	cmd.Stderr, cmd.WaitDelay = errs, time.Second
	in, err := cmd.StdinPipe()
	if err != nil {
		return Result{}, fmt.Errorf("prepare a process that renders: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return Result{}, fmt.Errorf("prepare a process that renders: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return Result{}, fmt.Errorf("start a process that renders: %w", err)
	}
	answer := &measured{out, maxAnswer}
	d := downstream{out: gob.NewEncoder(in), in: gob.NewDecoder(answer), read: p.Read, lookup: p.Lookup}
	r, said := d.result(ctx, j)
	_ = in.Close()
	if said != nil { // its output has no reader any more
		_ = cmd.Process.Kill()
	}
	ended := cmd.Wait()
	complaint := errs.String()
	switch {
	case d.looked:
		complaint = Withheld
	case j.Type == Decrypt:
		complaint = "its text is withheld, because it may contain a secret"
	}
	switch {
	case said == nil:
		if r.Looked = d.looked; d.looked && r.Problem != nil {
			r.Problem = r.Problem.withheld()
		}
		return r, r.Err()
	case ctx.Err() != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return Result{}, d.tooMuch("takes more than %s", p.Patience)
	case ctx.Err() != nil:
		return Result{}, ctx.Err()
	case answer.left <= 0:
		return Result{}, d.tooMuch("makes more than %d bytes", maxAnswer)
	case outOfMemory(ended, errs.String()):
		return Result{}, d.tooMuch("takes more than %d MiB of memory", heap>>20)
	case killed(ended):
		return Result{}, problem.Errorf(problem.TooLarge, "give the agent more memory (of its pod: resources.limits.memory), or split the chart",
			"rendering %swas ended by the system: the agent's pod or its node has no memory left", d.where())
	}
	if crashed, ok := errors.AsType[*exec.ExitError](ended); ok && crashed.ExitCode() == crash {
		return Result{}, problem.Errorf(problem.Invalid, "report it, with the files", "rendering %sbroke down: %s", d.where(), firstLineOf(complaint))
	}
	return Result{}, fmt.Errorf("render in a separate process: %w, %w: %s", said, ended, complaint)
}

// downstream is the agent's end.
type downstream struct {
	out    *gob.Encoder
	in     *gob.Decoder
	read   func(Identity)
	lookup Lookup
	at     string // template
	looked bool   // the templates received something from the cluster
}

// result sends the job, answers the questions and waits for the Result.
func (d *downstream) result(ctx context.Context, j Job) (Result, error) {
	if err := d.out.Encode(reply{Job: &j}); err != nil {
		return Result{}, err
	}
	var texts, crds []Text
	for {
		var m message
		if err := d.in.Decode(&m); err != nil {
			return Result{}, err
		}
		switch {
		case m.Done:
			m.Result.Texts, m.Result.CRDs = texts, crds
			return m.Result, nil
		case m.Chart != nil:
			if d.read != nil {
				d.read(*m.Chart)
			}
		case m.Text != nil:
			texts = append(texts, *m.Text)
		case m.CRD != nil:
			crds = append(crds, *m.CRD)
		case m.Ask != nil:
			if err := d.out.Encode(d.answer(ctx, *m.Ask)); err != nil {
				return Result{}, err
			}
		default:
			d.at = m.At
		}
	}
}

func (d *downstream) answer(ctx context.Context, q Question) (r reply) {
	if d.lookup == nil {
		return reply{}
	}
	object, err := d.lookup(ctx, q)
	if err == nil {
		d.looked = d.looked || object != nil
		return reply{Object: object}
	}
	if p, ok := errors.AsType[*problem.Error](err); ok {
		return reply{Refused: clip(p.Detail)}
	}
	return reply{Refused: clip(err.Error())}
}

// crash is the exit code of a Go program that its runtime ended.
const crash = 2

// where returns the template that was being rendered, if any, and a space.
func (d *downstream) where() string {
	if d.at == "" {
		return ""
	}
	return d.at + " "
}

func (d *downstream) tooMuch(format string, args ...any) error {
	return problem.Errorf(problem.TooLarge, "look for a loop or a recursion in the templates that does not end, or split it",
		"rendering %s%s", d.where(), fmt.Sprintf(format, args...))
}

func firstLineOf(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// measured bounds what a child may write.
type measured struct {
	io.Reader
	left int
}

func (b *measured) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errors.New("more than the limit")
	}
	n, err := b.Reader.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// clipped keeps the beginning of a child's error output.
type clipped struct {
	bytes.Buffer
	left int
}

func (c *clipped) Write(p []byte) (int, error) {
	n := min(len(p), c.left)
	c.left -= n
	_, _ = c.Buffer.Write(p[:n])
	return len(p), nil
}
