package decode

import (
	"encoding/json"
)

// JSON decodes a text into a value, as encoding/json does.
func (l Limits) JSON(text []byte, into any) error {
	if err := l.CheckJSON(text); err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// CheckJSON holds a text to the limits, and allocates nothing for it. Whether the text is
// JSON at all is its decoder's to find.
func (l Limits) CheckJSON(text []byte) error {
	if len(text) > l.Bytes {
		return l.tooLong()
	}
	values, depth, line := 1, 0, 1
	for at := 0; at < len(text); at++ {
		switch text[at] {
		case '\n':
			line++
		case '"':
			at = closing(text, at)
		case '[', '{':
			if depth++; depth > l.Depth {
				return l.tooDeep(line)
			}
			values++
		case ']', '}':
			depth--
		case ',':
			values++
		}
		if values > l.Values {
			return l.tooMany()
		}
	}
	return nil
}

// closing returns where a string that begins at a place ends, or the text's end if it does not.
func closing(text []byte, at int) int {
	for at++; at < len(text) && text[at] != '"'; at++ {
		if text[at] == '\\' {
			at++
		}
	}
	return at
}
