package kubernetes

import "github.com/pipeops/pipeops-vm-agent/runnerapi"

// Frames are followed from outside.
type Frames struct{ frames }

// NewFrames are those of a stream.
func NewFrames(kind string) Frames {
	return Frames{map[string]frames{
		"json": &jsonFrames{}, "protobuf": &protobufFrames{}, "websocket": &socketFrames{status: true},
	}[kind]}
}

// Follow reads on.
func (f Frames) Follow(p []byte) { f.follow(p) }

// Whole reports whether a message has just ended.
func (f Frames) Whole() bool { return f.whole() }

// End is the last message.
func (f Frames) End(why *runnerapi.Error) []byte { return f.end(why) }
