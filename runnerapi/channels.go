package runnerapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket" // RFC 6455, with contexts; net/http has none

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// The protocols that are spoken over WebSockets. That of exec is Kubernetes' own
// (KEP-4006): any client that knows that one knows this one. The other has the same
// framing, with one connection's bytes in place of a command's streams.
const (
	ExecProtocol        = "v5.channel.k8s.io"
	PortForwardProtocol = "v1.portforward.pipeops.io"
)

// The channels: each message begins with the byte of its own.
const (
	channelIn     = 0 // to the pod
	channelOut    = 1 // from the pod
	channelErr    = 2
	channelStatus = 3 // how it ended; the last that is sent
	channelResize = 4
	channelClose  = 255 // no more comes on the channel that the next byte names
)

const (
	// maxFrame bounds a message that is sent, so that the end, or a keystroke's echo,
	// is not held up for long by a large one.
	maxFrame = 32 << 10
	// maxMessage bounds one that is taken.
	maxMessage = 1 << 20
	// maxControl bounds what is no bytes of a stream.
	maxControl = 16 << 10
	// closeWait bounds the WebSocket's farewell.
	closeWait = 5 * time.Second
)

// channels is a WebSocket in that framing. One goroutine reads, any may write.
type channels struct {
	ws    *websocket.Conn
	stall time.Duration // how long the peer may take nothing of what it is sent
	// every is how often the peer is asked whether it is there, and patience how long it
	// may take to answer.
	every, patience time.Duration
	// busy is whether the reader waits for somebody to take what it has read: it cannot
	// hear pongs then. writing is how many wait for the peer to take something; they have
	// a patience of their own.
	busy    atomic.Bool
	writing atomic.Int32
}

func newChannels(ws *websocket.Conn, stall time.Duration) *channels {
	ws.SetReadLimit(maxMessage)
	return &channels{ws: ws, stall: stall, every: pingAfter, patience: pingTimeout}
}

// writer sends on one channel. A peer that takes nothing for as long as stall ends it.
// No context ends a write: the connection would end with it, before anybody could be told
// why.
func (c *channels) writer(channel byte) io.Writer {
	return &channelWriter{channels: c, channel: channel}
}

type channelWriter struct {
	channels *channels
	channel  byte
	frame    []byte
}

// Write implements io.Writer.
func (w *channelWriter) Write(p []byte) (int, error) {
	for written := 0; written < len(p); {
		n := min(len(p)-written, maxFrame)
		w.frame = append(append(w.frame[:0], w.channel), p[written:written+n]...)
		if err := w.channels.send(w.frame); err != nil {
			return written, err
		}
		written += n
	}
	return len(p), nil
}

// send has no context: the library ends the connection with that of a write.
func (c *channels) send(frame []byte) error { return c.sendWithin(c.stall, frame) }

func (c *channels) sendWithin(patience time.Duration, frame []byte) error {
	c.writing.Add(1)
	defer c.writing.Add(-1)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return c.ws.Write(ctx, websocket.MessageBinary, frame)
}

// end says that no more comes on a channel.
func (c *channels) end(channel byte) error { return c.send([]byte{channelClose, channel}) }

// pump reads until the peer ends the connection, and hands bytes to take by their
// channel: whole messages of the small ones, parts of the streams'.
func (c *channels) pump(ctx context.Context, take func(channel byte, p []byte, ended bool) error) error {
	buffer := make([]byte, maxFrame)
	for {
		_, message, err := c.ws.Reader(ctx)
		if err != nil {
			return err
		}
		if _, err := io.ReadFull(message, buffer[:1]); err != nil {
			continue // an empty message says nothing
		}
		switch channel := buffer[0]; channel {
		case channelClose:
			if _, err := io.ReadFull(message, buffer[:1]); err == nil {
				err = c.hand(take, buffer[0], nil, true)
				if err != nil {
					return err
				}
			}
		case channelResize, channelStatus:
			text, err := io.ReadAll(io.LimitReader(message, maxControl))
			if err != nil {
				return err
			}
			if err := c.hand(take, channel, text, false); err != nil {
				return err
			}
		default:
			if err := c.parts(message, buffer, channel, take); err != nil {
				return err
			}
		}
	}
}

func (c *channels) parts(message io.Reader, buffer []byte, channel byte, take func(byte, []byte, bool) error) error {
	for {
		n, err := message.Read(buffer)
		if n > 0 {
			if err := c.hand(take, channel, buffer[:n], false); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (c *channels) hand(take func(byte, []byte, bool) error, channel byte, p []byte, ended bool) error {
	c.busy.Store(true)
	defer c.busy.Store(false)
	return take(channel, p, ended)
}

// attend notices a peer that is gone without a word, or that left while nobody took what
// it had sent before, and calls gone then. It returns when ctx has ended.
func (c *channels) attend(ctx context.Context, gone context.CancelCauseFunc) {
	ticker := time.NewTicker(c.every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		// That the ping was taken must do where no pong is read.
		excused := c.excused()
		ping, cancel := context.WithTimeout(ctx, c.patience)
		err := c.ws.Ping(ping)
		cancel()
		silent := errors.Is(err, context.DeadlineExceeded)
		if err == nil || ctx.Err() != nil || silent && (excused || c.excused()) {
			continue
		}
		gone(fmt.Errorf("the other side is gone: %w", err))
		return
	}
}

// excused says whether there is a reason why no pong is heard.
func (c *channels) excused() bool { return c.busy.Load() || c.writing.Load() > 0 }

// status is how it ended, in the form of Kubernetes' Status object, which clients of
// that protocol understand.
type status struct {
	Kind       string         `json:"kind"`
	APIVersion string         `json:"apiVersion"`
	Status     string         `json:"status"` // Success or Failure
	Message    string         `json:"message,omitempty"`
	Reason     string         `json:"reason,omitempty"`
	Details    *statusDetails `json:"details,omitempty"`
	// Problem is ours: an error with its code and fix.
	Problem *Error `json:"problem,omitempty"`
}

type statusDetails struct {
	Causes []statusCause `json:"causes"`
}

type statusCause struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

const (
	statusSuccess = "Success"
	statusFailure = "Failure"
	reasonExit    = "NonZeroExitCode"
	causeExit     = "ExitCode"
)

func newStatus(exitCode int, err error) status {
	s := status{Kind: "Status", APIVersion: "v1", Status: statusSuccess}
	switch known := (*Error)(nil); {
	case errors.As(err, &known):
		s.Status, s.Message, s.Reason, s.Problem = statusFailure, known.Detail, string(known.Code), known
	case exitCode != 0:
		s.Status, s.Reason = statusFailure, reasonExit
		s.Message = fmt.Sprintf("the command ended with exit code %d", exitCode)
		s.Details = &statusDetails{Causes: []statusCause{{Reason: causeExit, Message: strconv.Itoa(exitCode)}}}
	}
	return s
}

// readStatus is newStatus' inverse.
func readStatus(text []byte) (exitCode int, err error) {
	var s status
	if err := json.Unmarshal(text, &s); err != nil {
		return 0, fmt.Errorf("how it ended makes no sense: %w", err)
	}
	switch {
	case s.Problem != nil:
		return 0, s.Problem
	case s.Status == statusSuccess:
		return 0, nil
	case s.Reason == reasonExit && s.Details != nil:
		for _, cause := range s.Details.Causes {
			if code, err := strconv.Atoi(cause.Message); cause.Reason == causeExit && err == nil && code != 0 {
				return code, nil
			}
		}
	}
	return 0, problem.New(http.StatusInternalServerError, problem.Internal, "look for the request ID in the agent's log", "%s", clip(s.Message))
}

// finish sends how it ended and says goodbye.
func (c *channels) finish(exitCode int, err error) {
	text, failed := json.Marshal(newStatus(exitCode, err))
	if failed != nil {
		text = []byte(`{"kind":"Status","apiVersion":"v1","status":"Failure"}`)
	}
	if c.sendWithin(closeWait, append([]byte{channelStatus}, text...)) == nil {
		_ = c.ws.Close(websocket.StatusNormalClosure, "")
	}
	_ = c.ws.CloseNow()
}

// channelConn is an end of a forwarded connection: what comes on one channel is read,
// what is written goes out on the other.
type channelConn struct {
	io.Writer
	*io.PipeReader
	closeWrite func() error
	closeAll   func() error
}

var _ HalfCloser = (*channelConn)(nil)

// newChannelConn writes to a channel and reads what is written to the pipe.
func newChannelConn(c *channels, out byte, closeAll func() error) (*channelConn, *io.PipeWriter) {
	in, to := io.Pipe()
	return &channelConn{
		Writer: c.writer(out), PipeReader: in, closeAll: closeAll,
		closeWrite: sync.OnceValue(func() error { return c.end(out) }),
	}, to
}

// CloseWrite implements HalfCloser.
func (c *channelConn) CloseWrite() error { return c.closeWrite() }

// Close implements io.Closer.
func (c *channelConn) Close() error {
	_ = c.PipeReader.Close()
	return c.closeAll()
}
