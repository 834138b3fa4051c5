package mux

import "encoding/binary"

// A frame is a header and, for data, as many bytes as the header announces.
const headerSize = 12

type frameType uint8

const (
	frameData   frameType = iota // length is that of the body
	frameWindow                  // length is how much more may be sent
	framePing                    // length is the ping's number
	frameGoAway                  // length is why
)

type flags uint16

const (
	flagSYN flags = 1 << iota // opens a stream; asks, of a ping
	flagACK                   // accepts a stream; answers, of a ping
	flagFIN                   // nothing more is sent
	flagRST                   // the stream is given up
)

// Why an end goes away.
const (
	goAwayNormal   = 0
	goAwayProtocol = 1
)

// initialWindow is what either end may send of a new stream: part of the protocol.
const initialWindow = 256 << 10

type header struct {
	kind   frameType
	flags  flags
	stream uint32
	length uint32
}

func (h header) append(to []byte) []byte {
	to = append(to, 0, byte(h.kind)) // version 0
	to = binary.BigEndian.AppendUint16(to, uint16(h.flags))
	to = binary.BigEndian.AppendUint32(to, h.stream)
	return binary.BigEndian.AppendUint32(to, h.length)
}

// parseHeader reads one from headerSize bytes.
func parseHeader(b []byte) (header, bool) {
	h := header{
		kind:   frameType(b[1]),
		flags:  flags(binary.BigEndian.Uint16(b[2:])),
		stream: binary.BigEndian.Uint32(b[4:]),
		length: binary.BigEndian.Uint32(b[8:]),
	}
	return h, b[0] == 0 && h.kind <= frameGoAway
}
