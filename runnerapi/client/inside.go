package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/google/uuid"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/wire"
)

// Exec runs a command in a container of an App until it ends, and returns its exit code. If ctx
// ends first, the effects of the command until then remain. Exec does not retry once the request
// was sent. It does not close Stdin, whose reader may outlive the call by one read.
func (a Apps) Exec(ctx context.Context, key runnerapi.Key, opts runnerapi.ExecOptions, streams runnerapi.ExecStreams) (exitCode int, err error) {
	query := url.Values{"command": opts.Command}
	addQuery(query, opts.Pod, opts.Container)
	for name, on := range map[string]bool{"stdin": opts.Stdin, "tty": opts.TTY} {
		if on {
			query.Set(name, "true")
		}
	}
	ch, header, err := a.upgrade(ctx, objectRequest("exec-app", key), query, wire.ExecProtocol)
	if err != nil {
		return 0, err
	}
	if id := header.Get(runnerapi.RecordingHeader); id != "" && streams.Recorded != nil {
		streams.Recorded(id)
	}
	end := ch.Watch(ctx, func(channel byte, p []byte, _ bool) error {
		to := map[byte]io.Writer{wire.ChannelOut: streams.Stdout, wire.ChannelErr: streams.Stderr}[channel]
		if to == nil {
			return nil
		}
		_, err := to.Write(p)
		return err
	}, func(error) {})
	sizing := make(chan struct{})
	var resizing sync.WaitGroup
	resizing.Go(func() { ch.Resize(streams.Resize, sizing) }) //nolint:contextcheck // see send
	if opts.Stdin && streams.Stdin != nil {
		// Not joined: it may wait for a terminal, of which nothing can wake it.
		go ch.Feed(streams.Stdin) //nolint:contextcheck // see send
	}
	exitCode, err = end.Wait()
	close(sizing)
	resizing.Wait()
	return exitCode, a.ended(ctx, err)
}

func addQuery(query url.Values, pod, container string) {
	for name, value := range map[string]string{"pod": pod, "container": container} {
		if value != "" {
			query.Set(name, value)
		}
	}
}

// ended words the end of a call that had begun.
func (c *core) ended(ctx context.Context, err error) error {
	known := &runnerapi.Error{}
	switch {
	case err == nil || errors.As(err, &known):
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return problem.New(http.StatusBadGateway, CodeUnreachable, "see what was done, then call again",
		"the connection to agent %s was lost: %v", c.config.AgentID, err)
}

// PortForward connects to a port of an App's pod. The connection ends with ctx, and
// reads an *Error where the pod's side failed.
func (a Apps) PortForward(ctx context.Context, key runnerapi.Key, opts runnerapi.PortForwardOptions) (runnerapi.HalfCloser, error) {
	query := url.Values{"port": {strconv.Itoa(opts.Port)}}
	addQuery(query, opts.Pod, "")
	ch, _, err := a.upgrade(ctx, objectRequest("port-forward-app", key), query, wire.PortForwardProtocol)
	if err != nil {
		return nil, err
	}
	var end *wire.Conversation
	conn, to := wire.NewChannelConn(ch, wire.ChannelIn, func() error { //nolint:contextcheck // see send
		end.Stop()
		_, _ = end.Wait()
		return nil
	})
	end = ch.Watch(ctx, func(channel byte, p []byte, ended bool) error {
		switch {
		case channel != wire.ChannelOut:
			return nil
		case ended:
			return to.Close()
		}
		_, err := to.Write(p)
		return err
	}, func(err error) {
		if err = a.ended(ctx, err); err == nil {
			err = io.EOF
		}
		_ = to.CloseWithError(err)
	})
	return conn, nil
}

// upgrade connects to the agent, for as long as the client's patience lasts, and makes
// the connection a WebSocket. It returns the headers of the answer. A refusal is an *Error.
func (c *core) upgrade(ctx context.Context, r *request, query url.Values, protocol string) (*wire.Channels, http.Header, error) {
	ctx, t := withTry(ctx)
	begun := c.tellSlow(ctx, t, r.call, false)
	defer begun()
	conn, err := c.connect(ctx, t)
	if err != nil {
		return nil, nil, err
	}
	once := &oneConn{conn: conn}
	defer once.unused() //nolint:contextcheck // nothing is dialled
	header := http.Header{"User-Agent": {c.config.UserAgent}, problem.RequestIDHeader: {uuid.NewString()}}
	handshake, cancel := context.WithTimeout(ctx, headerTimeout)
	defer cancel()
	target := "http://" + c.config.ServerName + r.path + "?" + query.Encode()
	ws, resp, err := websocket.Dial(handshake, target, &websocket.DialOptions{ //nolint:bodyclose // the library does
		HTTPClient: &http.Client{Transport: refusals{c.around(&http.Transport{DialContext: once.dial, DisableKeepAlives: true})}},
		HTTPHeader: header, Subprotocols: []string{protocol},
	})
	known := &runnerapi.Error{}
	switch {
	case errors.As(err, &known):
		return nil, nil, known
	case err != nil:
		return nil, nil, c.ended(ctx, err)
	case ws.Subprotocol() != protocol:
		_ = ws.CloseNow()
		return nil, nil, fmt.Errorf("agent %s does not speak %s", c.config.AgentID, protocol)
	}
	return wire.NewChannels(ws, stall), resp.Header, nil
}

// stall is how long the agent may take nothing of what it is sent.
const stall = time.Minute

// connect returns one connection of HTTP/1.1, which WebSockets need, through any of the endpoints.
// Nothing has been asked of the agent yet, so it is tried again.
func (c *core) connect(ctx context.Context, t *try) (net.Conn, error) {
	for {
		conn, err := c.upgrades.dial(ctx, "tcp", "")
		if err == nil {
			return conn, nil
		}
		again, stop := c.checkRetry(ctx, nil, err)
		if again {
			stop = pause(ctx, t.count)
		}
		if stop != nil {
			return nil, c.failure(ctx, t, stop)
		}
	}
}

// oneConn is a dialer for one connection that is there already.
type oneConn struct {
	mu   sync.Mutex
	conn net.Conn
}

func (o *oneConn) dial(context.Context, string, string) (net.Conn, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.conn == nil {
		return nil, errors.New("the connection was used already")
	}
	conn := o.conn
	o.conn = nil
	return conn, nil
}

func (o *oneConn) unused() {
	if conn, err := o.dial(context.Background(), "", ""); err == nil {
		_ = conn.Close()
	}
}

// refusals turns answers that are not a WebSocket into errors: the library keeps only the first
// bytes of such an answer.
type refusals struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (r refusals) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := r.RoundTripper.RoundTrip(req)
	if err != nil || resp.StatusCode == http.StatusSwitchingProtocols {
		return resp, err
	}
	defer func() { _ = resp.Body.Close() }()
	return nil, problem.Read(resp)
}
