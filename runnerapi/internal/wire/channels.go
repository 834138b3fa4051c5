// Package wire frames what Runners and agents stream to each other: logs, events, and the channels
// of exec and port-forward. Client and server share it.
package wire

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

	"github.com/coder/websocket"

	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// RFC 6455, with contexts; net/http has none

// The protocols that are spoken over WebSockets. Exec uses Kubernetes' own (KEP-4006), so any
// client of that protocol can use it. Port-forward uses the same framing, with one connection's
// bytes in place of a command's streams.
const (
	ExecProtocol        = "v5.channel.k8s.io"
	PortForwardProtocol = "v1.portforward.pipeops.io"
)

// The channels. Each message begins with the byte of its channel.
const (
	ChannelIn     = 0 // to the pod
	ChannelOut    = 1 // from the pod
	ChannelErr    = 2
	ChannelStatus = 3 // how it ended; always the last message
	ChannelResize = 4
	channelClose  = 255 // ends the channel that the next byte names
)

const (
	// maxFrame bounds a sent message, so that a large one does not delay the end, or a keystroke's
	// echo, for long.
	maxFrame = 32 << 10
	// maxMessage bounds a received message.
	maxMessage = 1 << 20
	// maxControl bounds a message that is not part of a stream.
	maxControl = 16 << 10
	// CloseWait bounds the WebSocket's closing handshake.
	CloseWait = 5 * time.Second
)

// Channels is a WebSocket in that framing. One goroutine reads; any goroutine may write.
type Channels struct {
	ws    *websocket.Conn
	stall time.Duration // how long the peer may read nothing of what it is sent
	// every is the interval of pings, and patience how long the peer may take to reply.
	every, patience time.Duration
	// busy is true while the reader waits for a consumer of what it has read: it cannot hear pongs
	// then. writing counts the writers that wait for the peer to read; they have their own timeout.
	busy    atomic.Bool
	writing atomic.Int32
}

// NewChannels returns a WebSocket in that framing. stall bounds how long the peer may read nothing.
func NewChannels(ws *websocket.Conn, stall time.Duration) *Channels {
	ws.SetReadLimit(maxMessage)
	return &Channels{ws: ws, stall: stall, every: PingAfter, patience: PingTimeout}
}

// Writer returns a writer for one channel. It fails if the peer reads nothing for as long as stall.
// No context ends a write: that would end the connection before the peer could be sent the reason.
func (c *Channels) Writer(channel byte) io.Writer {
	return &channelWriter{channels: c, channel: channel}
}

type channelWriter struct {
	channels *Channels
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

// send takes no context: the library ends the connection with the context of a write.
func (c *Channels) send(frame []byte) error { return c.sendWithin(c.stall, frame) }

func (c *Channels) sendWithin(patience time.Duration, frame []byte) error {
	c.writing.Add(1)
	defer c.writing.Add(-1)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return c.ws.Write(ctx, websocket.MessageBinary, frame)
}

// end reports to the peer that a channel has ended.
func (c *Channels) end(channel byte) error { return c.send([]byte{channelClose, channel}) }

// Pump reads until the peer ends the connection and passes bytes to take by channel. Control
// messages arrive whole, messages of streams in parts.
func (c *Channels) Pump(ctx context.Context, take func(channel byte, p []byte, ended bool) error) error {
	buffer := make([]byte, maxFrame)
	for {
		_, message, err := c.ws.Reader(ctx)
		if err != nil {
			return err
		}
		if _, err := io.ReadFull(message, buffer[:1]); err != nil {
			continue // an empty message carries nothing
		}
		switch channel := buffer[0]; channel {
		case channelClose:
			if _, err := io.ReadFull(message, buffer[:1]); err == nil {
				err = c.hand(take, buffer[0], nil, true)
				if err != nil {
					return err
				}
			}
		case ChannelResize, ChannelStatus:
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

func (c *Channels) parts(message io.Reader, buffer []byte, channel byte, take func(byte, []byte, bool) error) error {
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

func (c *Channels) hand(take func(byte, []byte, bool) error, channel byte, p []byte, ended bool) error {
	c.busy.Store(true)
	defer c.busy.Store(false)
	return take(channel, p, ended)
}

// Attend calls gone if the peer has disappeared silently, or left while the data that it had sent
// before was still unread. It returns once ctx has ended.
func (c *Channels) Attend(ctx context.Context, gone context.CancelCauseFunc) {
	ticker := time.NewTicker(c.every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		// While no pong is read, a ping that was sent has to be enough.
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

// excused reports whether there is a reason for a missing pong.
func (c *Channels) excused() bool { return c.busy.Load() || c.writing.Load() > 0 }

// status is the outcome in the form of Kubernetes' Status object, which clients of that protocol
// understand.
type status struct {
	Kind       string         `json:"kind"`
	APIVersion string         `json:"apiVersion"`
	Status     string         `json:"status"` // Success or Failure
	Message    string         `json:"message,omitempty"`
	Reason     string         `json:"reason,omitempty"`
	Details    *statusDetails `json:"details,omitempty"`
	// Problem is our extension: an error with its code and fix.
	Problem *runnerapi.Error `json:"problem,omitempty"`
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
	switch known := (*runnerapi.Error)(nil); {
	case errors.As(err, &known):
		s.Status, s.Message, s.Reason, s.Problem = statusFailure, known.Detail, string(known.Code), known
	case exitCode != 0:
		s.Status, s.Reason = statusFailure, reasonExit
		s.Message = fmt.Sprintf("the command ended with exit code %d", exitCode)
		s.Details = &statusDetails{Causes: []statusCause{{Reason: causeExit, Message: strconv.Itoa(exitCode)}}}
	}
	return s
}

// readStatus returns the inverse of newStatus.
func readStatus(text []byte) (exitCode int, err error) {
	var s status
	if err := json.Unmarshal(text, &s); err != nil {
		return 0, fmt.Errorf("how it ended makes no sense: %w", err)
	}
	switch {
	case s.Problem != nil && s.Problem.Detail != "":
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
	return 0, problem.New(http.StatusInternalServerError, problem.Internal, "look for the request ID in the agent's log", "%s", printable.Clip(s.Message))
}

// Finish sends the outcome and closes the connection.
func (c *Channels) Finish(exitCode int, err error) {
	text, failed := json.Marshal(newStatus(exitCode, err))
	if failed != nil {
		text = []byte(`{"kind":"Status","apiVersion":"v1","status":"Failure"}`)
	}
	if c.sendWithin(CloseWait, append([]byte{ChannelStatus}, text...)) == nil {
		_ = c.ws.Close(websocket.StatusNormalClosure, "")
	}
	_ = c.ws.CloseNow()
}

// ChannelConn is one end of a forwarded connection. It reads from one channel and writes to the
// other.
type ChannelConn struct {
	io.Writer
	*io.PipeReader
	closeWrite func() error
	closeAll   func() error
}

var _ runnerapi.HalfCloser = (*ChannelConn)(nil)

// NewChannelConn returns a connection that writes to a channel and reads what is written to the
// returned pipe.
func NewChannelConn(c *Channels, out byte, closeAll func() error) (*ChannelConn, *io.PipeWriter) {
	in, to := io.Pipe()
	return &ChannelConn{
		Writer: c.Writer(out), PipeReader: in, closeAll: closeAll,
		closeWrite: sync.OnceValue(func() error { return c.end(out) }),
	}, to
}

// CloseWrite implements HalfCloser.
func (c *ChannelConn) CloseWrite() error { return c.closeWrite() }

// Close implements io.Closer.
func (c *ChannelConn) Close() error {
	_ = c.PipeReader.Close()
	return c.closeAll()
}

// CloseNow closes the connection without a handshake.
func (c *Channels) CloseNow() error { return c.ws.CloseNow() }
