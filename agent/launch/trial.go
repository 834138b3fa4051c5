package launch

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// settle is how long a release on trial has to stay ready.
	settle = 5 * time.Second
	// signOfLife has it look at itself thrice in this time; else it would each ten
	// seconds, once it has been ready.
	signOfLife = 3 * time.Second
	// statusReady is its status while it is.
	statusReady = "ready"
	// defaultPatience is longer than the 20 s for which it drains.
	defaultPatience = 25 * time.Second
	// maxMessage bounds what is read of one message to a service manager.
	maxMessage = 4096
)

// ErrNotBegun is returned for a trial for which the machine had no room: it says nothing about the
// release.
var ErrNotBegun = errors.New("the trial could not begin")

// Trial is a program that runs beside the agent, as another replica of it, until it is known
// whether it becomes ready. It reports as it would report to systemd: by messages to a socket,
// which here is the agent's.
type Trial struct {
	Dir      Dir
	Path     string // of the program, verified
	Version  string
	Deadline time.Duration
	// Patience is how long it may take to end on request; 25 s if 0.
	Patience time.Duration
	// Stderr gets what the program logs.
	Stderr io.Writer
}

// Run returns nil when the program was ready in time and stayed so; else why not. Either way the
// program has ended. The error is the context's when that ended first.
func (t Trial) Run(ctx context.Context) error {
	messages, closeSocket, err := t.listen(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotBegun, err)
	}
	defer closeSocket()
	p, err := t.start()
	switch {
	case errors.Is(err, syscall.ENOEXEC):
		return fmt.Errorf("it cannot be started: %w", err)
	case err != nil:
		return fmt.Errorf("%w: %w", ErrNotBegun, err)
	}
	defer p.end(cmp.Or(t.Patience, defaultPatience))
	return t.watch(ctx, p, messages)
}

// watch waits for the first of: ready for long enough, ended, too late.
func (t Trial) watch(ctx context.Context, p *child, messages <-chan string) error {
	deadline := time.NewTimer(t.Deadline)
	defer deadline.Stop()
	says := &word{status: "it said nothing"}
	settling := time.NewTimer(settle)
	settling.Stop()
	settled, late := false, false
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.ended:
			return p.why()
		case <-settling.C:
			return nil
		case <-deadline.C:
			late = true
		case m := <-messages:
			says.take(m)
		}
		switch {
		case says.ready() && !settled:
			settling.Reset(settle)
		case !says.ready():
			settling.Stop()
		}
		if settled = says.ready(); late && !settled {
			return fmt.Errorf("it was not ready within %s: %s", t.Deadline, says.status)
		}
	}
}

// word is what a program on trial reports about itself.
type word struct {
	announced bool // that it is ready, which is reported once
	status    string
}

func (w *word) take(message string) {
	for line := range strings.SplitSeq(message, "\n") {
		if line == "READY=1" {
			w.announced, w.status = true, statusReady
		}
		if status, ok := strings.CutPrefix(line, "STATUS="); ok {
			w.status = status
		}
	}
}

// ready reports whether it is ready: a status with something missing revokes the readiness.
func (w *word) ready() bool { return w.announced && w.status == statusReady }

func (t Trial) socket() string { return t.Dir.file("notify.sock") }

// listen opens the socket on which the program reports its state.
func (t Trial) listen(ctx context.Context) (messages <-chan string, closeSocket func(), err error) {
	if err := os.Remove(t.socket()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, nil, err
	}
	conn, err := (&net.ListenConfig{}).ListenPacket(ctx, "unixgram", t.socket())
	if err != nil {
		return nil, nil, err
	}
	found, stop := make(chan string), make(chan struct{})
	var reading sync.WaitGroup
	reading.Go(func() {
		buffer := make([]byte, maxMessage)
		for {
			n, _, err := conn.ReadFrom(buffer)
			if err != nil {
				return // closed
			}
			select {
			case found <- string(buffer[:n]):
			case <-stop:
				return
			}
		}
	})
	return found, func() {
		close(stop)
		_ = conn.Close()
		reading.Wait()
		_ = os.Remove(t.socket())
	}, nil
}

// child is the program on trial.
type child struct {
	cmd   *exec.Cmd
	tail  *tail
	ended chan struct{}
	err   error // once it has ended
}

func (t Trial) start() (*child, error) {
	p := &child{tail: &tail{}, ended: make(chan struct{})}
	p.cmd = exec.Command(t.Path, os.Args[1:]...) //nolint:gosec,noctx // verified by its signature; end ends it
	p.cmd.Env = append(withoutManager(environ(envTrial+"="+t.Version)), "NOTIFY_SOCKET="+t.socket(),
		fmt.Sprintf("WATCHDOG_USEC=%d", signOfLife.Microseconds()))
	p.cmd.Stdout, p.cmd.Stderr = t.Stderr, io.MultiWriter(t.Stderr, p.tail)
	p.cmd.SysProcAttr = endsWithParent()
	p.cmd.WaitDelay = time.Second
	started := make(chan error)
	go func() {
		// Linux ends the child with the thread that started it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.err = p.cmd.Wait()
			close(p.ended)
		}
	}()
	return p, <-started
}

// withoutManager removes the service manager's variables from the program's environment.
func withoutManager(env []string) []string {
	var own []string
	for _, v := range env {
		if !strings.HasPrefix(v, "NOTIFY_SOCKET=") && !strings.HasPrefix(v, "WATCHDOG_") {
			own = append(own, v)
		}
	}
	return own
}

// end makes the program drain and waits for it.
func (p *child) end(patience time.Duration) {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // in vain only when it has ended
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-p.ended:
	case <-timer.C:
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// why returns how the program ended by itself.
func (p *child) why() error {
	how := "it ended by itself"
	if p.err != nil {
		how = "it ended: " + p.err.Error()
	}
	if last := p.tail.last(); last != "" {
		how += ": " + last
	}
	return errors.New(how)
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const maxTail = 2048

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if extra := len(t.text) - maxTail; extra > 0 {
		t.text = append(t.text[:0], t.text[extra:]...)
	}
	return len(p), nil
}

// last returns the last line.
func (t *tail) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := bytes.TrimSpace(t.text)
	return string(text[bytes.LastIndexByte(text, '\n')+1:])
}
