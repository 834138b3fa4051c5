package runnerapi

import (
	"context"
	"encoding/json"
	"io"
	"sync"
)

// feed sends a command's input, and its end.
func (c *channels) feed(stdin io.Reader) {
	if _, err := io.Copy(c.writer(channelIn), stdin); err == nil {
		_ = c.end(channelIn)
	}
}

// resize passes the terminal's sizes on until done is closed.
func (c *channels) resize(sizes <-chan TerminalSize, done <-chan struct{}) {
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
				err = c.send(append([]byte{channelResize}, text...))
			}
			if err != nil {
				return
			}
		}
	}
}

// watch reads in a goroutine until the other side has ended it or ctx has, and calls
// ended then.
func (c *channels) watch(ctx context.Context, take func(byte, []byte, bool) error, ended func(error)) *conversation {
	ctx, cancel := context.WithCancel(ctx)
	v := &conversation{ch: c, cancel: cancel, done: make(chan struct{})}
	attending, gone := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { c.attend(attending, func(err error) { gone(err); cancel() }) })
	go func() {
		defer close(v.done)
		told := false
		err := c.pump(ctx, func(channel byte, p []byte, ended bool) error {
			if channel == channelStatus {
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

// conversation is the reading of one WebSocket until its end.
type conversation struct {
	ch     *channels
	cancel context.CancelFunc
	done   chan struct{}
	code   int
	err    error
}

func (v *conversation) stop() { v.cancel() }

func (v *conversation) wait() (exitCode int, err error) {
	<-v.done
	v.cancel()
	return v.code, v.err
}
