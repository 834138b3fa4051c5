// Command hello is the web app that the demo and the end-to-end tests deploy.
// Its flags make it fail in the ways that real apps do.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/term"
)

const (
	shutdownTimeout = 10 * time.Second
	floodInterval   = time.Millisecond
	eatStep         = 8 << 20
	eatInterval     = 20 * time.Millisecond
)

type options struct {
	addr       string
	crashAfter time.Duration
	exitCode   int
	startDelay time.Duration
	neverReady bool
	ignoreTerm bool
	eatMemory  bool
	burnCPU    bool
	floodLogs  bool
	alsoListen string
	lines      int
	lineSize   int
	bytesAddr  string
	get        string
	sum        string
	cat        bool
	size       bool
	write      string
}

func main() {
	if isTar() {
		os.Exit(tar(os.Args[1:]))
	}
	log.SetFlags(log.LstdFlags | log.LUTC)
	log.SetOutput(os.Stdout)
	o := parseFlags()
	if code, known := chore(flag.Args()); known {
		os.Exit(code)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	if o.ignoreTerm {
		stop()
		signal.Ignore(syscall.SIGTERM)
		ctx = context.Background()
	}
	code := run(ctx, o)
	stop()
	os.Exit(code)
}

func parseFlags() options {
	var o options
	flag.StringVar(&o.addr, "listen", ":8080", "address to listen on")
	flag.StringVar(&o.alsoListen, "also-listen", "", "second address to listen on; with the first one's port it clashes")
	flag.DurationVar(&o.crashAfter, "crash-after", 0, "exit with --exit-code after this time")
	flag.IntVar(&o.exitCode, "exit-code", 1, "what --crash-after exits with")
	flag.DurationVar(&o.startDelay, "start-delay", 0, "start listening after this time")
	flag.BoolVar(&o.neverReady, "never-ready", false, "answer /readyz with 503")
	flag.BoolVar(&o.ignoreTerm, "ignore-term", false, "go on after SIGTERM, until it is killed")
	flag.BoolVar(&o.eatMemory, "eat-memory", false, "allocate memory until killed")
	flag.BoolVar(&o.burnCPU, "burn-cpu", false, "use all of a core that it can get")
	flag.BoolVar(&o.floodLogs, "flood-logs", false, "log a line every millisecond")
	flag.IntVar(&o.lines, "lines", 0, "log as many numbered lines a second")
	flag.IntVar(&o.lineSize, "line-size", 100, "bytes of each numbered line")
	flag.StringVar(&o.bytesAddr, "bytes-listen", "", "address that sends and takes bytes, as many as are asked for")
	flag.StringVar(&o.sum, "sum", "", "print the SHA-256 of FILE and exit")
	flag.BoolVar(&o.cat, "cat", false, "copy standard input to standard output and exit")
	flag.BoolVar(&o.size, "size", false, "print the size of the terminal for each line of standard input, then exit")
	flag.StringVar(&o.write, "write", "", "write FILE at the start, and exit 1 if that fails")
	flag.StringVar(&o.get, "get", "", "print the answer to GET URL and exit, 1 unless it is 200")
	flag.Parse()
	return o
}

// run returns the exit code.
func run(ctx context.Context, o options) int {
	if o.get != "" {
		return get(ctx, o.get)
	}
	if o.sum != "" {
		return sum(o.sum)
	}
	if o.cat {
		return cat()
	}
	if o.size {
		return size()
	}
	if o.write != "" {
		if err := os.WriteFile(o.write, []byte("written\n"), 0o600); err != nil {
			log.Printf("cannot write: %v", err)
			return 1
		}
	}
	if !pause(ctx, o.startDelay) {
		return 0
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if o.eatMemory {
		go eatMemory(ctx)
	}
	if o.burnCPU {
		go burnCPU(ctx)
	}
	if o.floodLogs {
		go floodLogs(ctx)
	}
	if o.lines > 0 {
		go numberLines(ctx, o.lines, o.lineSize)
	}
	crash := make(<-chan time.Time)
	if o.crashAfter > 0 {
		crash = time.After(o.crashAfter)
	}
	server, failed, err := listen(ctx, o)
	if err != nil {
		log.Printf("cannot listen: %v", err)
		return 1
	}
	if o.bytesAddr != "" {
		go func() { failed <- serveBytes(ctx, o.bytesAddr) }()
	}
	select {
	case <-ctx.Done():
		return shutdown(server)
	case err := <-failed:
		log.Printf("server ended: %v", err)
		return 1
	case <-crash:
		log.Printf("crashing on purpose with exit code %d", o.exitCode)
		return o.exitCode
	}
}

// cat is for tests that reach into the container.
func cat() int {
	if _, err := io.Copy(os.Stdout, os.Stdin); err != nil {
		log.Printf("cat: %v", err)
		return 1
	}
	return 0
}

// size is for tests that change the terminal's size and check whether the container sees that.
func size() int {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		width, height, err := term.GetSize(int(os.Stdin.Fd()))
		if err != nil {
			log.Printf("size: %v", err)
			return 1
		}
		fmt.Printf("%dx%d\n", width, height)
	}
	return 0
}

func listen(ctx context.Context, o options) (*http.Server, chan error, error) {
	server := &http.Server{Handler: logged(handler(o.neverReady)), ReadHeaderTimeout: 5 * time.Second}
	failed := make(chan error, 3)
	for _, addr := range []string{o.addr, o.alsoListen} {
		if addr == "" {
			continue
		}
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
		if err != nil {
			return nil, nil, errors.Join(err, server.Close())
		}
		go func() { failed <- server.Serve(listener) }()
		log.Printf("listening on %s as %s", listener.Addr(), podName())
	}
	return server, failed, nil
}

func shutdown(server *http.Server) int {
	log.Print("terminating: finishing open requests")
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		log.Printf("requests left open: %v", err)
		return 1
	}
	return 0
}

func handler(neverReady bool) http.Handler {
	mux := http.NewServeMux()
	var requests atomic.Int64 // of the page
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, fmt.Sprintf("http_requests_total %d", requests.Load()))
	})
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		answer(w, http.StatusOK, fmt.Sprintf("hello from %s: %s", podName(), os.Getenv("GREETING")))
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if neverReady {
			answer(w, http.StatusServiceUnavailable, "not ready, and never will be")
			return
		}
		answer(w, http.StatusOK, "ok")
	})
	return mux
}

func answer(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	if _, err := fmt.Fprintln(w, text); err != nil {
		log.Printf("client went away: %v", err)
	}
}

func logged(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		next.ServeHTTP(w, r)
		log.Printf("%s %q from %s in %s", r.Method, r.URL.Path, r.RemoteAddr, time.Since(start).Round(time.Microsecond))
	})
}

// podName returns the pod's name: Kubernetes makes it the host name.
func podName() string {
	if name := os.Getenv("POD_NAME"); name != "" {
		return name
	}
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}

// pause reports whether the time has passed, and not the context.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

func eatMemory(ctx context.Context) {
	var eaten [][]byte
	for pause(ctx, eatInterval) {
		chunk := make([]byte, eatStep)
		for i := 0; i < len(chunk); i += os.Getpagesize() {
			chunk[i] = 1 // untouched pages take no memory
		}
		eaten = append(eaten, chunk)
		log.Printf("holding %d MiB", len(eaten)*eatStep>>20)
	}
}

func burnCPU(ctx context.Context) {
	for ctx.Err() == nil { // which is work enough
	}
}

func floodLogs(ctx context.Context) {
	for n := 0; pause(ctx, floodInterval); n++ {
		log.Printf("line %d of a flood", n)
	}
}

// get lets a pod of this image be the client too: the image has no shell.
func get(ctx context.Context, url string) int {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		log.Print(err)
		return 2
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		log.Print(err)
		return 1
	}
	_, copyErr := io.Copy(os.Stdout, io.LimitReader(response.Body, 1<<20))
	if err := errors.Join(copyErr, response.Body.Close()); err != nil {
		log.Print(err)
		return 1
	}
	if response.StatusCode != http.StatusOK {
		log.Print(response.Status)
		return 1
	}
	return 0
}
