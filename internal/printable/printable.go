// Package printable makes foreign text harmless on a terminal and in a list: text from an agent, a
// cluster or a repository must not move the cursor, change the writing direction or look like
// something else. It checks characters, not meaning.
package printable

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Max is how many bytes of one text are shown.
const Max = 16 << 10

// Hidden reports whether a character is invisible in its place: controls (C0, C1, DEL), format
// characters (including bidirectional and zero-width ones), line separators, and characters that
// displays ignore according to Unicode.
func Hidden(r rune) bool {
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Other_Default_Ignorable_Code_Point)
}

// Text returns s in one line. It replaces each control character by a space, and hidden characters
// and invalid UTF-8 by U+FFFD. It clips the result to Max bytes.
func Text(s string) string {
	clipped := len(s) > Max
	if clipped {
		s = s[:Max]
		for i := 0; i < utf8.UTFMax && s != "" && !utf8.RuneStart(s[len(s)-1]); i++ {
			s = s[:len(s)-1] // not half a character
		}
		if r, size := utf8.DecodeLastRuneInString(s); r == utf8.RuneError && size == 1 {
			s = s[:len(s)-1]
		}
	}
	s = Line(s, false)
	if clipped {
		s += "…"
	}
	return s
}

// Lines is like Text for each line of s, however long; line breaks and tabs stay.
func Lines(s string) string {
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		lines[i] = Line(line, true)
	}
	return strings.Join(lines, "\n")
}

// Line is like Text for a line of any length; it keeps tabs if tabs is true.
func Line(s string, tabs bool) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t' && tabs:
			return r
		case r < ' ' || r == 0x7f:
			return ' '
		case r == utf8.RuneError || Hidden(r):
			return utf8.RuneError
		}
		return r
	}, s)
}

// JSON returns an encoded document with \u for each hidden character: these occur only in strings,
// where that is equivalent.
func JSON(document []byte) []byte {
	if !bytes.ContainsFunc(document, needsEscape) {
		return document
	}
	var out bytes.Buffer
	for _, r := range string(document) {
		escape(&out, r, false)
	}
	return out.Bytes()
}

// Quoted returns the JSON string s as a double-quoted YAML one, hidden characters escaped.
func Quoted(s string) string {
	var out bytes.Buffer
	for _, r := range s {
		escape(&out, r, true)
	}
	return out.String()
}

// needsEscape leaves the line breaks of the document itself.
func needsEscape(r rune) bool { return r != '\n' && r != utf8.RuneError && Hidden(r) }

func escape(out *bytes.Buffer, r rune, yaml bool) {
	switch high, low := utf16.EncodeRune(r); {
	case !needsEscape(r):
		out.WriteRune(r)
	case r < 0x10000:
		fmt.Fprintf(out, `\u%04x`, r)
	case yaml:
		fmt.Fprintf(out, `\U%08x`, r)
	default:
		fmt.Fprintf(out, `\u%04x\u%04x`, high, low)
	}
}
