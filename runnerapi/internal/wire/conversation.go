package wire

import (
	"context"
	"encoding/json"
	"io"
	"sync"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Feed sends a command's input, and its end.
func (c *Channels) Feed(stdin io.Reader) {
	if _, err := io.Copy(c.Writer(ChannelIn), stdin); err == nil {
		_ = c.end(ChannelIn)
	}
}

// Resize passes the terminal's sizes on until done is closed.
func (c *Channels) Resize(sizes <-chan runnerapi.TerminalSize, done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case size, ok := <-sizes:
			if !ok {
				return
			}
			text, err := json.Marshal(size)
			if err == nil {
				err = c.send(append([]byte{ChannelResize}, text...))
			}
			if err != nil {
				return
			}
		}
	}
}

// Watch reads in a goroutine until the other side has ended it or ctx has, and calls
// ended then.
func (c *Channels) Watch(ctx context.Context, take func(byte, []byte, bool) error, ended func(error)) *Conversation {
	ctx, cancel := context.WithCancel(ctx)
	v := &Conversation{cancel: cancel, done: make(chan struct{})}
	attending, gone := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { c.Attend(attending, func(err error) { gone(err); cancel() }) })
	go func() {
		defer close(v.done)
		told := false
		err := c.Pump(ctx, func(channel byte, p []byte, ended bool) error {
			if channel == ChannelStatus {
				told = true
				v.code, v.err = readStatus(p)
				return nil
			}
			return take(channel, p, ended)
		})
		if cause := context.Cause(attending); cause != nil && ctx.Err() == nil {
			err = cause
		}
		gone(nil)
		watching.Wait()
		if !told {
			v.err = err
		}
		_ = c.ws.CloseNow()
		ended(v.err)
	}()
	return v
}

// Conversation is the reading of one WebSocket until its end.
type Conversation struct {
	cancel context.CancelFunc
	done   chan struct{}
	code   int
	err    error
}

// Stop ends the conversation.
func (v *Conversation) Stop() { v.cancel() }

// Wait returns how the conversation ended.
func (v *Conversation) Wait() (exitCode int, err error) {
	<-v.done
	v.cancel()
	return v.code, v.err
}
