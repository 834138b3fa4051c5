// Package boundedfile reads files that others write, whose size is not known.
package boundedfile

import (
	"fmt"
	"io"
	"os"
)

// Read reads a file. One of more than most bytes is an error.
func Read(file string, most int64) ([]byte, error) {
	text, err := Head(file, most+1)
	if err != nil {
		return nil, err
	}
	if int64(len(text)) > most {
		return nil, fmt.Errorf("%s is larger than %d bytes", file, most)
	}
	return text, nil
}

// Head reads at most n bytes of a file. A caller whose decoder refuses more than so many bytes asks
// for one more.
func Head(file string, n int64) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	return io.ReadAll(io.LimitReader(f, n))
}
