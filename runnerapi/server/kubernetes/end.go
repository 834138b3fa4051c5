package kubernetes

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/wire"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/transport"
)

// sayWhy makes a watch, or a session over a WebSocket, end with a Status if the agent ends it,
// because of the policy or because it stops. Logs are text, and SPDY carries the Status in a stream
// of its own that the agent does not see: these break off.
func sayWhy(ctx context.Context, k *runnerapi.KubernetesRequest, resp *http.Response) {
	why := func() *runnerapi.Error { return whyEnded(ctx) }
	if resp.StatusCode == http.StatusSwitchingProtocols && k.Upgrade == "websocket" {
		if body, ok := resp.Body.(io.ReadWriteCloser); ok {
			frames := &socketFrames{status: hasStatus[resp.Header.Get("Sec-Websocket-Protocol")]}
			resp.Body = &endingSession{
				endingStream: endingStream{ReadCloser: body, why: why, frames: frames},
				to:           body, ended: make(chan struct{}),
			}
		}
		return
	}
	if k.Verb != "watch" || resp.StatusCode != http.StatusOK {
		return
	}
	switch media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); media {
	case "application/json":
		resp.Body = &endingStream{ReadCloser: resp.Body, why: why, frames: &jsonFrames{}}
	case "application/vnd.kubernetes.protobuf":
		resp.Body = &endingStream{ReadCloser: resp.Body, why: why, frames: &protobufFrames{}}
	}
}

// whyEnded returns nil where the caller, or the API server, has ended a stream.
func whyEnded(ctx context.Context) *runnerapi.Error {
	known := (*runnerapi.Error)(nil)
	switch {
	case ctx.Err() == nil:
		return nil
	case errors.As(context.Cause(ctx), &known):
		return known
	case transport.Drained(ctx):
		return errDraining
	}
	return nil
}

// frames follow where messages end in a stream, so that another one may come after them.
type frames interface {
	follow(p []byte)
	whole() bool // at the end of a message
	end(*runnerapi.Error) []byte
}

// endingStream is a stream of the API server with a last message of the agent's.
type endingStream struct {
	io.ReadCloser
	why    func() *runnerapi.Error
	frames frames
	last   []byte
	said   bool
}

// Read implements io.Reader.
func (e *endingStream) Read(p []byte) (int, error) {
	if e.said {
		n := copy(p, e.last)
		if e.last = e.last[n:]; n == 0 {
			return 0, io.EOF
		}
		return n, nil
	}
	n, err := e.ReadCloser.Read(p)
	e.frames.follow(p[:n])
	if err == nil {
		return n, nil
	}
	if why := e.why(); why != nil && e.frames.whole() {
		e.said, e.last = true, e.frames.end(why)
		return n, nil
	}
	return n, err
}

// endingSession is an endingStream that is written to as well.
type endingSession struct {
	endingStream
	to    io.Writer
	ended chan struct{} // the last message has been passed on
	once  sync.Once
}

// Read implements io.Reader.
func (e *endingSession) Read(p []byte) (int, error) {
	n, err := e.endingStream.Read(p)
	if err != nil {
		e.once.Do(func() { close(e.ended) })
	}
	return n, err
}

// Write implements io.Writer. Its error ends the session, so it waits for the last message.
func (e *endingSession) Write(p []byte) (int, error) {
	n, err := e.to.Write(p)
	if err != nil && e.why() != nil {
		patience := time.NewTimer(wire.CloseWait)
		defer patience.Stop()
		select {
		case <-e.ended:
		case <-patience.C:
		}
	}
	return n, err
}

// jsonFrames are events of a watch in JSON, each of which ends with the only line break in it.
type jsonFrames struct{ within bool }

func (f *jsonFrames) follow(p []byte) {
	if len(p) > 0 {
		f.within = p[len(p)-1] != '\n'
	}
}

func (f *jsonFrames) whole() bool { return !f.within }

func (*jsonFrames) end(why *runnerapi.Error) []byte {
	status, err := json.Marshal(kubernetesStatus(why))
	if err != nil {
		return nil
	}
	event, err := json.Marshal(metav1.WatchEvent{Type: string(watch.Error), Object: runtime.RawExtension{Raw: status}})
	if err != nil {
		return nil
	}
	return append(event, '\n')
}

// protobufFrames are events of a watch in protobuf, each after its length in four bytes.
type protobufFrames struct {
	head []byte
	left uint32
}

func (f *protobufFrames) follow(p []byte) {
	for len(p) > 0 {
		if f.left > 0 {
			n := min(int(f.left), len(p))
			f.left -= uint32(n) //nolint:gosec // no more than itself
			p = p[n:]
			continue
		}
		f.head, p = append(f.head, p[0]), p[1:]
		if len(f.head) == 4 {
			f.left, f.head = binary.BigEndian.Uint32(f.head), f.head[:0]
		}
	}
}

func (f *protobufFrames) whole() bool { return f.left == 0 && len(f.head) == 0 }

func (*protobufFrames) end(why *runnerapi.Error) []byte {
	status := kubernetesStatus(why)
	raw, err := status.Marshal()
	if err != nil {
		return nil
	}
	object := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "Status"}, Raw: raw}
	if raw, err = object.Marshal(); err != nil {
		return nil
	}
	event := metav1.WatchEvent{Type: string(watch.Error), Object: runtime.RawExtension{Raw: append([]byte(protobufPrefix), raw...)}}
	if raw, err = event.Marshal(); err != nil {
		return nil
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(raw))), raw...) //nolint:gosec // a Status is small
}
