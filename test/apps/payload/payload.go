// Package payload is what the test program hello sends and the benchmark checks: numbered lines,
// and any number of bytes. Data that is lost, duplicated or changed on the way shows.
package payload

import (
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
)

// Line returns the line with a number, size bytes long or as long as its number. The text after the
// number differs for each number.
func Line(n, size int) string {
	text := strconv.Itoa(n)
	if size <= len(text) {
		return text
	}
	rest := fmt.Sprintf(" %x;", uint32(n)*2654435761) // Knuth's multiplicative hash
	return (text + strings.Repeat(rest, (size-len(text))/len(rest)+1))[:size]
}

// Number returns the number of a line of that size. It fails for a line that Line did not write.
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

// Bytes returns n incompressible bytes, the same each time.
func Bytes(n int64) io.Reader { return io.LimitReader(rand.NewChaCha8([32]byte{'p'}), n) }
