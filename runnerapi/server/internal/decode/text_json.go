package decode

import (
	"bytes"
	"errors"
	"math/big"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

var (
	errNoUTF8    = errors.New("the text is not UTF-8")
	errSurrogate = errors.New(`the text has half of a surrogate pair (\ud800 to \udfff): no character is written so`)
)

// soundText refuses JSON whose texts a decoder would change: it stores U+FFFD in place of invalid
// UTF-8, and in place of half a surrogate pair.
func soundText(data []byte) error {
	if !utf8.Valid(data) {
		return errNoUTF8
	}
	for i := bytes.IndexByte(data, '\\'); i >= 0 && i < len(data); {
		unit, ok := escaped(data[i:])
		switch next, low := escaped(tail(data, i+6)); {
		case !ok:
			i += 2
		case !utf16.IsSurrogate(rune(unit)):
			i += 6
		case !low || utf16.DecodeRune(rune(unit), rune(next)) == utf8.RuneError:
			return errSurrogate
		default:
			i += 12
		}
		next := bytes.IndexByte(tail(data, i), '\\')
		if next < 0 {
			return nil
		}
		i += next
	}
	return nil
}

func tail(data []byte, from int) []byte { return data[min(from, len(data)):] }

// escaped returns the unit of UTF-16 that data begins with, as \uXXXX.
func escaped(data []byte) (uint16, bool) {
	if len(data) < 6 || data[0] != '\\' || data[1] != 'u' {
		return 0, false
	}
	unit, err := strconv.ParseUint(string(data[2:6]), 16, 16)
	return uint16(unit), err == nil
}

// maxExponent bounds the digits that a number such as 1e18 is written out with.
const maxExponent = 18

// wholeNumbers writes whole numbers as Go decodes them into integers: 1.0 and 1e0 as 1.
func wholeNumbers(data []byte) []byte {
	var out []byte
	done, inText := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case inText && c == '\\':
			i++
		case c == '"':
			inText = !inText
		case !inText && (c == '-' || '0' <= c && c <= '9'):
			end := i + 1
			for end < len(data) && bytes.IndexByte([]byte("0123456789+-.eE"), data[end]) >= 0 {
				end++
			}
			if whole, ok := wholeNumber(string(data[i:end])); ok {
				out = append(append(out, data[done:i]...), whole...)
				done = end
			}
			i = end - 1
		}
	}
	if done == 0 {
		return data
	}
	return append(out, data[done:]...)
}

// wholeNumber returns how a whole number is written plainly, if text is one that is not.
func wholeNumber(text string) (string, bool) {
	mantissa, exponent, _ := bytes.Cut(bytes.ToLower([]byte(text)), []byte("e"))
	if !bytes.ContainsRune(mantissa, '.') && exponent == nil {
		return "", false
	}
	if len(text) > 2*maxExponent || !plainNumber(mantissa) {
		return "", false
	}
	if power, err := strconv.Atoi(string(exponent)); exponent != nil && (err != nil || power < -maxExponent || power > maxExponent) {
		return "", false
	}
	number, ok := new(big.Rat).SetString(text)
	if !ok || !number.IsInt() || !number.Num().IsInt64() {
		return "", false
	}
	return number.Num().String(), true
}

// plainNumber reports whether a mantissa is one of JSON: 1. and 01.0 are none.
func plainNumber(mantissa []byte) bool {
	digits := bytes.TrimPrefix(mantissa, []byte("-"))
	whole, fraction, dotted := bytes.Cut(digits, []byte("."))
	return len(whole) > 0 && (len(whole) == 1 || whole[0] != '0') && (!dotted || len(fraction) > 0)
}
