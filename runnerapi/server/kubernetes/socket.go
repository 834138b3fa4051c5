package kubernetes

import (
	"encoding/binary"
	"encoding/json"

	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/wire"
)

// hasStatus are the protocols of WebSockets whose channel 3 carries a Status at the end.
var hasStatus = map[string]bool{"v4.channel.k8s.io": true, "v5.channel.k8s.io": true}

// The parts of a WebSocket's frame (RFC 6455, section 5.2).
const (
	frameFinal   = 0x80
	frameBinary  = frameFinal | 2
	frameClose   = frameFinal | 8
	frameControl = 8
	frameMasked  = 0x80
	closeNormal  = 1000
	maxReason    = 123
)

// socketFrames are the frames that a server sends, which has them unmasked.
type socketFrames struct {
	status bool
	head   []byte
	left   uint64
	within bool // a message has more frames to come
}

func (f *socketFrames) follow(p []byte) {
	for len(p) > 0 {
		if f.left > 0 {
			n := min(f.left, uint64(len(p)))
			f.left -= n
			p = p[n:]
			continue
		}
		f.head, p = append(f.head, p[0]), p[1:]
		if length, known := frameLength(f.head); known {
			if f.head[0]&frameControl == 0 {
				f.within = f.head[0]&frameFinal == 0
			}
			f.left, f.head = length, f.head[:0]
		}
	}
}

// frameLength reads how long a frame is behind its head, once that is whole.
func frameLength(head []byte) (uint64, bool) {
	if len(head) < 2 {
		return 0, false
	}
	length, rest := uint64(head[1]&^frameMasked), head[2:]
	mask := 0
	if head[1]&frameMasked != 0 {
		mask = 4
	}
	switch {
	case length == 126 && len(rest) == 2+mask:
		return uint64(binary.BigEndian.Uint16(rest)), true
	case length == 127 && len(rest) == 8+mask:
		return binary.BigEndian.Uint64(rest), true
	}
	return length, length < 126 && len(rest) == mask
}

func (f *socketFrames) whole() bool { return f.left == 0 && len(f.head) == 0 && !f.within }

// end returns a Status, where the protocol has one, and a close frame with the reason.
func (f *socketFrames) end(why *runnerapi.Error) []byte {
	var frames []byte
	if f.status {
		status, err := json.Marshal(kubernetesStatus(why))
		if err != nil {
			return nil
		}
		frames = appendFrame(frames, frameBinary, append([]byte{wire.ChannelStatus}, status...))
	}
	reason := printable.Shorten(kubernetesMessage(why), maxReason-len("…"))
	return appendFrame(frames, frameClose, append(binary.BigEndian.AppendUint16(nil, closeNormal), reason...))
}

func appendFrame(to []byte, kind byte, payload []byte) []byte {
	to = append(to, kind)
	if len(payload) < 126 {
		to = append(to, byte(len(payload))) //nolint:gosec // just compared
	} else {
		to = binary.BigEndian.AppendUint16(append(to, 126), uint16(len(payload))) //nolint:gosec // a Status is small
	}
	return append(to, payload...)
}
