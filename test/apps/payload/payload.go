// Package payload is what the test program hello sends on purpose and the benchmark looks
// for: numbered lines, and as many bytes as are wanted. Whatever is missing, doubled or
// changed on the way shows.
package payload

import (
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
)

// Line is the line of a number, size bytes long or as long as its number: what follows the
// number is another text for each.
func Line(n, size int) string {
	text := strconv.Itoa(n)
	if size <= len(text) {
		return text
	}
	rest := fmt.Sprintf(" %x;", uint32(n)*2654435761) // Knuth's multiplicative hash
	return (text + strings.Repeat(rest, (size-len(text))/len(rest)+1))[:size]
}

// Number is the number of a line of that size. It fails for whatever Line does not write.
func Number(line string, size int) (int, error) {
	number, _, _ := strings.Cut(line, " ")
	n, err := strconv.Atoi(number)
	if err != nil {
		return 0, fmt.Errorf("a line without a number: %.40q", line)
	}
	if line != Line(n, size) {
		return 0, fmt.Errorf("line %d is not as it was written: %.40q", n, line)
	}
	return n, nil
}

// Bytes are n bytes that no compression shortens, the same each time.
func Bytes(n int64) io.Reader { return io.LimitReader(rand.NewChaCha8([32]byte{'p'}), n) }
